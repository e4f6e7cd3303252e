// Times as people read them, in the browser's language and zone.
'use strict';

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const dayName = new Intl.DateTimeFormat(undefined, { weekday: 'long', day: 'numeric', month: 'long' });
const weekday = new Intl.DateTimeFormat(undefined, { weekday: 'short' });
const shortDate = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });
const longDate = new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'medium' });

function daysAgo(moment) {
  const midnight = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate());
  return Math.round((midnight(new Date()) - midnight(moment)) / 86400000);
}

function shortTime(moment) {
  const days = daysAgo(moment);
  if (days === 0) return clock.format(moment);
  if (days === 1) return 'Yesterday';
  return days < 7 ? weekday.format(moment) : shortDate.format(moment);
}

function dateName(moment) {
  const days = daysAgo(moment);
  return days === 0 ? 'today' : days === 1 ? 'yesterday' : `on ${shortDate.format(moment)}`;
}

function dayTitle(moment) {
  const days = daysAgo(moment);
  return days === 0 ? 'Today' : days === 1 ? 'Yesterday' : dayName.format(moment);
}

const timeForms = { short: shortTime, date: dateName, clock: (moment) => clock.format(moment) };

function showTimes(root = document) {
  for (const time of findAll('time[datetime]', root)) {
    const moment = new Date(time.dateTime);
    const text = timeForms[time.dataset.form ?? 'clock'](moment);
    if (time.textContent !== text) time.textContent = text;
    time.title = longDate.format(moment);
  }
}
