// Brings the page to life. The server renders; htmx fetches the list and earlier messages; this follows the
// conversation, sends, and keeps what was typed.
//
// Following: the page carries the last `seq` that it shows, the stream brings what comes after it, and an entry
// whose `seq` is not higher is dropped. So each message is shown once, whatever happens to the connection.
'use strict';

const RETRY_FIRST_MS = 300;
const RETRY_LONGEST_MS = 5000;
const HIDDEN_GRACE_MS = 30000;
const LIST_EVERY_MS = 4000;
const LIST_PAUSE_MS = 150;
const SEND_TIMEOUT_MS = 20000;
const NEAR_END_PIXELS = 80;
const HEAD_EVENTS = ['session_changed', 'run_started', 'run_finished', 'tool_result'];

const find = (selector, root = document) => root.querySelector(selector);
const findAll = (selector, root = document) => root.querySelectorAll(selector);

let conversation = null;

// Requests

class Problem extends Error {
  constructor(message, { isPassing = false, status = 0 } = {}) {
    super(message);
    this.isPassing = isPassing;
    this.status = status;
  }
}

async function call(method, path, body) {
  const headers = pageHeaders();
  const request = { method, headers, signal: AbortSignal.timeout(SEND_TIMEOUT_MS) };
  if (body !== undefined) {
    headers['Content-Type'] = 'application/json';
    request.body = JSON.stringify(body);
  }
  let response;
  let answer = {};
  try {
    response = await fetch(path, request);
    const text = await response.text();
    answer = response.headers.get('Content-Type')?.includes('json') ? JSON.parse(text || '{}') : { text };
  } catch (error) {
    const reason = error.name === 'TimeoutError' ? 'The gateway did not answer in time.' : 'The gateway cannot be reached.';
    throw new Problem(reason, { isPassing: true });
  }
  if (response.ok) return answer;
  if (response.status === 401) onRefused(headers);
  const message = answer.error?.message ?? `The gateway answered with status ${response.status}.`;
  throw new Problem(message, { isPassing: response.status >= 500, status: response.status });
}

const sessionPath = (key, rest = '') => `/sessions/${encodeURIComponent(key)}${rest}`;
const pageAddress = (key) => `/?session=${encodeURIComponent(key)}`;
const contentAddress = (key) => `/page?session=${encodeURIComponent(key)}`;

function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

// Times

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

// What was typed: the text, and the id under which it was last tried to be sent.

class Draft {
  constructor(key) {
    this.name = `draft:${key}`;
    const stored = JSON.parse(sessionStorage.getItem(this.name) ?? '{}');
    this.text = stored.text ?? '';
    this.tried = stored.tried ?? null;
  }

  set(text) {
    this.text = text;
    if (text || this.tried) sessionStorage.setItem(this.name, JSON.stringify({ text, tried: this.tried }));
    else sessionStorage.removeItem(this.name);
  }

  // The same text goes under the same id, so that a message which arrived unnoticed is not doubled.
  messageId(text) {
    if (this.tried?.text !== text) this.tried = { id: `web-${randomId()}`, text };
    this.set(this.text);
    return this.tried.id;
  }

  // Whether the text that was tried is now stored.
  settle(messageId) {
    if (this.tried?.id !== messageId) return false;
    const isUnchanged = this.text.trim() === this.tried.text;
    this.tried = null;
    this.set(isUnchanged ? '' : this.text);
    return true;
  }
}

class Conversation {
  constructor(element) {
    this.element = element;
    this.key = element.dataset.key;
    this.sessionId = element.dataset.sessionId;
    this.lastSeq = Number(element.dataset.lastSeq);
    this.runs = new Set(element.dataset.runs.split(' ').filter(Boolean));
    this.entries = find('#entries', element);
    this.scroller = find('#scroller', element);
    this.growing = find('#growing', element);
    this.draft = new Draft(this.key);
    this.stream = null;
    this.failures = 0;
    this.retry = null;
    this.isClosed = false;
    this.isSending = false;
    this.isAtEnd = true;
    this.listen();
    this.arrange();
    this.showRuns();
    this.showDraft();
    this.toEnd();
    this.forgetGrowing({ isJoining: this.runs.size > 0 });
    this.open();
  }

  listen() {
    this.input = find('#message', this.element);
    this.input.addEventListener('input', () => {
      this.draft.set(this.input.value);
      this.fit();
    });
    this.input.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    find('#composer', this.element).addEventListener('submit', (event) => {
      event.preventDefault();
      this.send();
    });
    this.scroller.addEventListener('scroll', () => {
      this.isAtEnd = this.distanceToEnd() < NEAR_END_PIXELS;
      if (this.isAtEnd) find('#to-end').hidden = true;
    });
    this.sizes = new ResizeObserver(() => this.isAtEnd && this.toEnd());
    this.sizes.observe(this.scroller);
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.retry);
    this.sizes.disconnect();
    this.pause();
  }

  // Following

  open() {
    if (this.stream || this.isClosed) return;
    clearTimeout(this.retry);
    const address = `/page/follow?${new URLSearchParams({ session: this.key })}`;
    this.stream = new Stream(address, this.lastSeq, {
      onOpen: () => this.onOpen(),
      onEvent: (name, data) => this.onEvent(name, data),
      onLost: () => this.onError(),
    });
  }

  onEvent(name, data) {
    switch (name) {
      case 'entry':
        this.take(data);
        break;
      case 'delta':
        this.grow(data);
        break;
      case 'delay':
        this.showDelay(data);
        break;
      case 'reset':
        if (data.reason === 'deleted') this.onGone();
        else this.reload();
        break;
      case 'end':
        this.onError();
        break;
    }
  }

  pause() {
    this.stream?.close();
    this.stream = null;
  }

  onOpen() {
    if (this.failures) {
      document.body.dispatchEvent(new Event('connected'));
    }
    this.failures = 0;
    this.showConnection('');
  }

  // Pieces of a reply may be lost while nobody listens, so the growing text begins anew.
  onError() {
    this.pause();
    this.forgetGrowing({ isJoining: this.runs.size > 0 });
    this.failures += 1;
    if (this.failures > 1) this.showConnection('Connection lost. Reconnecting…');
    const delay = Math.min(RETRY_FIRST_MS * 2 ** (this.failures - 1), RETRY_LONGEST_MS);
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.reconnect(), delay);
  }

  // Asks first, because a stream that fails does not say why.
  async reconnect() {
    if (this.stream || this.isClosed) return;
    try {
      await this.refreshHead();
    } catch (problem) {
      if (problem.status === 404) this.onGone();
      else if (!this.isClosed) this.onError();
      return;
    }
    this.open();
  }

  onGone() {
    this.close();
    this.showConnection('This session was deleted. Choose another one in the list.');
    this.input.readOnly = true;
    this.runs.clear();
    this.showRuns();
  }

  take(entry) {
    if (entry.seq <= this.lastSeq) return;
    this.lastSeq = entry.seq;
    if (entry.type === 'session_started' && entry.sessionId !== this.sessionId) {
      this.reload();
      return;
    }
    // A late result of the conversation before the last reset.
    if (entry.sessionId !== this.sessionId) return;
    switch (entry.type) {
      case 'user_message':
        if (entry.runId) this.runs.add(entry.runId);
        this.onStored(entry.messageId);
        break;
      case 'run_started':
        this.runs.add(entry.runId);
        this.forgetGrowing();
        break;
      case 'assistant_message':
        this.forgetGrowing();
        break;
      case 'run_finished':
        this.runs.delete(entry.runId);
        this.forgetGrowing();
        break;
    }
    if (entry.html) this.append(entry.html);
    if (entry.type === 'run_started') this.markStarted(entry.runId);
    this.showRuns();
    if (HEAD_EVENTS.includes(entry.type)) this.refreshHead().catch(() => {});
    refreshList();
  }

  grow({ runId, text, restart }) {
    if (!this.runs.has(runId)) return;
    if (restart) {
      this.forgetGrowing();
      return;
    }
    const body = find('.body', this.growing);
    if (this.growing.hidden) body.textContent = this.isJoining ? '… ' : '';
    body.append(text);
    body.normalize();
    this.growing.hidden = false;
    this.showRuns();
    this.keepUp();
  }

  // Why the agent waits for the provider of its model; empty once it goes on.
  showDelay({ runId, delay }) {
    if (!this.runs.has(runId)) return;
    find('#delay', this.element).textContent = delay?.text ?? '';
    this.showRuns();
    this.keepUp();
  }

  // With `isJoining` the reply is already under way, and its beginning was not seen.
  forgetGrowing({ isJoining = false } = {}) {
    this.isJoining = isJoining;
    this.growing.hidden = true;
    find('.body', this.growing).textContent = '';
  }

  // Begins anew with what the server shows now.
  async reload() {
    if (this.isClosed) return;
    this.pause();
    clearTimeout(this.retry);
    try {
      await show(this.key, { isFocused: document.activeElement === this.input });
    } catch {
      this.retry = setTimeout(() => this.reload(), RETRY_LONGEST_MS);
    }
  }

  // Entries

  append(html) {
    const template = document.createElement('template');
    template.innerHTML = html;
    const entry = template.content.firstElementChild;
    showTimes(template.content);
    const day = dayTitle(new Date(entry.dataset.at));
    const shown = [...findAll('.day', this.entries)].at(-1)?.textContent;
    if (day !== shown) this.entries.append(daySeparator(day));
    this.entries.append(template.content);
    this.nest(entry);
    this.markQueued(entry);
    this.keepUp();
  }

  // Puts separators between days, results into their calls, and shows times.
  arrange() {
    for (const separator of findAll('.day', this.entries)) separator.remove();
    let shown = null;
    for (const entry of findAll('.entry', this.entries)) {
      const day = dayTitle(new Date(entry.dataset.at));
      if (day !== shown) entry.before(daySeparator(day));
      shown = day;
    }
    for (const result of findAll('.entry.result', this.entries)) this.nest(result);
    for (const entry of findAll('.entry.user[data-run]', this.entries)) this.markQueued(entry);
    showTimes(this.element);
  }

  nest(result) {
    if (!result.matches('.result')) return;
    const tool = find(`details.tool[data-call="${CSS.escape(result.dataset.call)}"]`, this.entries);
    if (!tool) return;
    const isError = result.matches('.error');
    find('.tool-state', tool).textContent = isError ? 'failed' : 'done';
    tool.classList.add(isError ? 'error' : 'done');
    tool.append(find('.output', result));
    result.remove();
  }

  markQueued(entry) {
    const active = findAll('.entry.user[data-run]', this.entries);
    const isFirst = [...active].find((other) => this.runs.has(other.dataset.run)) === entry;
    entry.classList.toggle('is-queued', this.runs.has(entry.dataset.run) && !isFirst && this.runs.size > 1);
  }

  markStarted(runId) {
    for (const entry of findAll(`[data-run="${CSS.escape(runId)}"]`, this.entries)) entry.classList.remove('is-queued');
  }

  showRuns() {
    const isWorking = this.runs.size > 0;
    find('#cancel', this.element).hidden = !isWorking;
    if (!isWorking) find('#delay', this.element).textContent = '';
    const isDelayed = find('#delay', this.element).textContent !== '';
    find('#working', this.element).hidden = !isWorking || (!this.growing.hidden && !isDelayed);
    if (!isWorking) {
      const cancel = find('#cancel', this.element);
      cancel.disabled = false;
      cancel.textContent = 'Cancel';
      for (const entry of findAll('.is-queued', this.entries)) entry.classList.remove('is-queued');
    }
    this.element.classList.toggle('is-working', isWorking);
    if (this.isAtEnd) this.toEnd();
  }

  distanceToEnd() {
    return this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight;
  }

  toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.isAtEnd = true;
    find('#to-end', this.element).hidden = true;
  }

  // Stays at the end if it was there; else says that there is more below.
  keepUp() {
    if (this.isAtEnd) this.toEnd();
    else find('#to-end', this.element).hidden = false;
  }

  // Sending

  async send() {
    const text = this.input.value.trim();
    if (!text || this.isSending || this.isClosed) return;
    this.isSending = true;
    this.isAtEnd = true;
    this.showProblem('');
    this.element.classList.add('is-sending');
    const messageId = this.draft.messageId(text);
    try {
      const posted = await call('POST', sessionPath(this.key, '/messages'), { text, messageId });
      if (posted.runId && posted.seq > this.lastSeq) this.runs.add(posted.runId);
      this.onStored(messageId);
    } catch (problem) {
      this.onUnsent(messageId, problem);
    }
    this.isSending = false;
    this.element.classList.remove('is-sending');
    this.showRuns();
  }

  onStored(messageId) {
    if (!this.draft.settle(messageId)) return;
    this.input.value = this.draft.text;
    this.fit();
    this.showProblem('');
  }

  // The message may have been stored although the answer was lost: then the stream has said so already.
  onUnsent(messageId, problem) {
    if (this.draft.tried?.id !== messageId) return;
    const hope = problem.isPassing ? ' The message will be sent when the connection is back.' : '';
    this.showProblem(`Not sent: ${problem.message}${hope}`);
    this.isWaiting = problem.isPassing;
    if (problem.isPassing && this.stream?.isOpen) setTimeout(() => this.sendAgain(), RETRY_LONGEST_MS);
  }

  // Only what was tried and not changed since.
  sendAgain() {
    const { tried } = this.draft;
    if (this.isWaiting && tried && this.input.value.trim() === tried.text) this.send();
  }

  // With what was typed before this script was here.
  showDraft() {
    const text = [this.draft.text, this.input.value].filter(Boolean).join('\n');
    this.input.value = text;
    this.draft.set(text);
    this.fit();
    find('#send', this.element).disabled = false;
    const { tried } = this.draft;
    if (!tried) return;
    if (find(`[data-message-id="${CSS.escape(tried.id)}"]`, this.entries)) this.onStored(tried.id);
    else if (tried.text === this.draft.text.trim()) this.showProblem('Not sent yet.');
  }

  fit() {
    if (CSS.supports('field-sizing', 'content')) return;
    this.input.style.height = 'auto';
    this.input.style.height = `${this.input.scrollHeight}px`;
  }

  showProblem(text) {
    const problem = find('#send-problem', this.element);
    problem.hidden = !text;
    find('span', problem).textContent = text;
    this.isWaiting = false;
  }

  showConnection(text) {
    const connection = find('#connection', this.element);
    connection.textContent = text;
    connection.hidden = !text;
  }

  async cancel() {
    const button = find('#cancel', this.element);
    button.disabled = true;
    button.textContent = 'Cancelling…';
    try {
      const { cancelled } = await call('POST', sessionPath(this.key, '/cancel'));
      if (!cancelled) {
        await Promise.all([...this.runs].map((run) => call('POST', `/runs/${encodeURIComponent(run)}/cancel`)));
      }
    } catch (problem) {
      this.showProblem(`Not cancelled: ${problem.message}`);
    }
    button.disabled = false;
    button.textContent = 'Cancel';
  }

  // The head

  // Of several that are under way the last one asked for counts.
  async refreshHead() {
    const number = (this.headNumber = (this.headNumber ?? 0) + 1);
    const { text } = await call('GET', `/page/header?${new URLSearchParams({ session: this.key })}`);
    if (this.isClosed || number !== this.headNumber) return;
    const head = find('#head', this.element);
    await htmx.swap({ sourceElement: head, target: head, text, swap: 'innerMorph' });
    showTimes(head);
    document.title = `${find('#title', this.element).textContent} · Antiphon`;
  }
}

function daySeparator(title) {
  const separator = document.createElement('li');
  separator.className = 'day';
  separator.textContent = title;
  return separator;
}

// The list

let listTimer = null;

function refreshList() {
  listTimer ??= setTimeout(() => {
    listTimer = null;
    find('#sessions')?.dispatchEvent(new Event('sessions-changed'));
  }, LIST_PAUSE_MS);
}

// Which sessions are opened, and how many of their children are shown: `row` or `row:count`, with commas. The server
// renders what is opened; this tab remembers it over reloads.

function readOpened() {
  const parts = find('#opened').value.split(',').filter(Boolean);
  return new Map(parts.map((part) => part.split(':')));
}

function writeOpened(opened) {
  const text = [...opened].map(([row, shown]) => (shown ? `${row}:${shown}` : row)).join(',');
  find('#opened').value = text;
  sessionStorage.setItem('opened', text);
  find('#sessions').dispatchEvent(new Event('sessions-changed'));
}

// What the server opened for the present session stays open beside what was.
function restoreOpened() {
  const here = readOpened();
  const stored = (sessionStorage.getItem('opened') ?? '').split(',').filter(Boolean);
  const missing = stored.map((part) => part.split(':')).filter(([row]) => !here.has(row));
  if (missing.length) writeOpened(new Map([...missing, ...here]));
}

// The list tells how far the log is; a stream that does not bring it has died unnoticed.
let behindSince = null;

function checkStream() {
  const current = find('#sessions a[aria-current]');
  if (!conversation?.stream || !current || current.dataset.key !== conversation.key) return;
  const isBehind = Number(current.dataset.lastSeq) > conversation.lastSeq;
  if (isBehind && behindSince === conversation.lastSeq) conversation.onError();
  behindSince = isBehind ? conversation.lastSeq : null;
}

// Raises `Problem` and leaves everything as it is if the session cannot be fetched.
async function show(key, { isFocused = false, isPushed = false } = {}) {
  const address = pageAddress(key);
  const before = find('#conversation');
  const push = isPushed ? { push: address } : {};
  await htmx.ajax('GET', contentAddress(key), { target: '#conversation', select: '#conversation', swap: 'outerHTML', ...push });
  if (find('#conversation') === before) throw new Problem('The gateway cannot be reached.', { isPassing: true });
  adopt();
  if (isFocused) find('#message')?.focus();
}

function adopt() {
  const element = find('#conversation');
  if (!element) location.reload();
  if (!element || conversation?.element === element) return;
  conversation?.close();
  conversation = element.dataset.key ? new Conversation(element) : null;
  const title = find('#title')?.textContent;
  document.title = title ? `${title} · Antiphon` : 'Antiphon';
}

function markCurrent() {
  for (const link of findAll('#sessions a')) {
    if (link.dataset.key === conversation?.key) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
}

// Questions

// A part of a sentence whose other words keep their order, whichever way it is read.
function isolated(text) {
  const element = document.createElement('bdi');
  element.textContent = text;
  return element;
}

function ask({ title, text, yes, no = 'Cancel', field, value = '', isDangerous = false, act }) {
  const dialog = find('#ask');
  find('#ask-title').replaceChildren(...[title].flat());
  find('#ask-text').textContent = text ?? '';
  find('#ask-text').hidden = !text;
  find('#ask-field').hidden = field === undefined;
  find('#ask-field span').textContent = field ?? '';
  find('#ask-input').value = value;
  find('#ask-yes').textContent = yes;
  find('#ask-no').textContent = no;
  find('#ask-yes').classList.toggle('danger', isDangerous);
  find('#ask-problem').hidden = true;
  find('form', dialog).onsubmit = async (event) => {
    if (event.submitter?.value !== 'yes') return;
    event.preventDefault();
    find('#ask-yes').disabled = true;
    try {
      await act(find('#ask-input').value.trim());
      dialog.close();
    } catch (problem) {
      find('#ask-problem').textContent = problem.message;
      find('#ask-problem').hidden = false;
    }
    find('#ask-yes').disabled = false;
  };
  dialog.showModal();
  if (field !== undefined) find('#ask-input').select();
  else find('#ask-yes').focus();
}

// What buttons do

const actions = {
  async show(link, event) {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    document.body.classList.remove('is-list-shown');
    if (link.dataset.key === conversation?.key) return;
    await show(link.dataset.key, { isPushed: true, isFocused: matchMedia('(pointer: fine)').matches });
  },
  'show-list': () => document.body.classList.add('is-list-shown'),
  'hide-list': () => document.body.classList.remove('is-list-shown'),
  more(button) {
    find('#shown').value = button.dataset.shown;
    find('#sessions').dispatchEvent(new Event('sessions-changed'));
  },
  fold(button) {
    const opened = readOpened();
    const { row } = button.dataset;
    if (!opened.delete(row)) opened.set(row, '');
    writeOpened(opened);
  },
  'fold-more'(button) {
    const opened = readOpened();
    opened.set(button.dataset.row, button.dataset.shown);
    writeOpened(opened);
  },
  'cancel-session'(button) {
    const { key, title, busy } = button.dataset;
    const others = Number(busy) ? ` This also cancels the work of sessions below it (${busy} at work).` : '';
    ask({
      title: ['Cancel the work of “', isolated(title), '”?'],
      text: `Its run ends. Everything that it has written so far is kept.${others}`,
      yes: 'Cancel its work',
      no: 'Keep it running',
      isDangerous: true,
      async act() {
        await call('POST', sessionPath(key, '/cancel'));
        refreshList();
        conversation?.refreshHead().catch(() => {});
      },
    });
  },
  async 'new-chat'(button) {
    find('#agents')?.hidePopover();
    button.disabled = true;
    try {
      const session = await call('POST', '/sessions', {
        sessionId: `web:${randomId()}`,
        agentId: button.dataset.agent,
        source: { kind: 'api', platform: 'web' },
      });
      document.body.classList.remove('is-list-shown');
      await show(session.key, { isPushed: true, isFocused: true });
      refreshList();
    } finally {
      button.disabled = false;
    }
  },
  rename(button) {
    const { key } = conversation;
    ask({
      title: 'Rename this session',
      yes: 'Rename',
      field: 'Name',
      value: button.dataset.label,
      act: (label) => call('PATCH', sessionPath(key), { label: label || null }),
    });
  },
  model(button) {
    const { key } = conversation;
    ask({
      title: 'Change the model',
      text: `The model is now ${button.dataset.default}. Write the new one as provider:model, or leave the field empty to use the agent's own.`,
      yes: 'Change',
      field: 'Model',
      value: button.dataset.model,
      act: (model) => call('PATCH', sessionPath(key), { model: model || null }),
    });
  },
  async fork() {
    find('#session-menu').hidePopover();
    const session = await call('POST', sessionPath(conversation.key, '/fork'), {});
    await show(session.key, { isPushed: true, isFocused: true });
    refreshList();
  },
  reset() {
    const { key } = conversation;
    ask({
      title: 'Start over?',
      text: 'A new conversation starts under the same name. The agent forgets this one, and a run in progress is cancelled.',
      yes: 'Start over',
      act: () => call('POST', sessionPath(key, '/reset')),
    });
  },
  delete() {
    const { key } = conversation;
    ask({
      title: 'Delete this session?',
      text: 'Its messages are deleted permanently.',
      yes: 'Delete',
      isDangerous: true,
      async act() {
        await call('DELETE', sessionPath(key));
        conversation?.close();
        sessionStorage.removeItem(`draft:${key}`);
        location.assign('/');
      },
    });
  },
  dismiss: (button) => button.closest('dialog').close(),
  cancel: () => conversation.cancel(),
  'to-end': () => conversation.toEnd(),
  suggest(button) {
    conversation.input.value = button.dataset.text;
    conversation.draft.set(button.dataset.text);
    conversation.fit();
    conversation.input.focus();
  },
  async browsers() {
    await showBrowsers();
    find('#browsers').showModal();
  },
  async 'revoke-browser'(button) {
    button.disabled = true;
    try {
      await call('DELETE', `/tokens/${encodeURIComponent(button.dataset.id)}`);
    } catch (problem) {
      // It may have ended by itself meanwhile; the list says so.
      if (problem.status !== 404) {
        find('#browsers-problem').textContent = problem.message;
        find('#browsers-problem').hidden = false;
      }
    }
    await showBrowsers();
  },
  async 'sign-out'() {
    await call('POST', '/auth/sign-out');
    localStorage.removeItem(SECRET_NAME);
    sessionStorage.clear();
    history.replaceState(null, '', '/');
    signedOut('');
  },
};

async function showBrowsers() {
  const { text } = await call('GET', '/page/browsers');
  find('#browsers-list').innerHTML = text;
  showTimes(find('#browsers-list'));
}

document.addEventListener('click', async (event) => {
  const element = event.target.closest('[data-action]');
  if (!element) return;
  if (element.closest('[popover]')) element.closest('[popover]').hidePopover();
  try {
    await actions[element.dataset.action](element, event);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    conversation?.showProblem(problem.message);
  }
});

document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') document.body.classList.remove('is-list-shown');
});

document.addEventListener('submit', (event) => event.target.id === 'search' && event.preventDefault());

document.addEventListener('htmx:config:request', (event) => {
  Object.assign(event.detail.ctx.request.headers, pageHeaders());
});

// Earlier messages come in above; what is being read stays where it is.
let distanceBefore = null;

document.addEventListener('htmx:before:swap', (event) => {
  const { status } = event.detail.ctx.response ?? {};
  if (status >= 400 && event.target.closest?.('#sidebar, .older')) {
    event.preventDefault();
    return;
  }
  if (event.target.closest?.('.older')) {
    const { scroller } = conversation;
    distanceBefore = scroller.scrollHeight - scroller.scrollTop;
  }
});

document.addEventListener('htmx:after:swap', () => {
  if (!find('#sidebar')) return;
  adopt();
  markCurrent();
  showTimes(find('#sidebar'));
  checkStream();
  if (distanceBefore !== null) {
    conversation.arrange();
    conversation.scroller.scrollTop = conversation.scroller.scrollHeight - distanceBefore;
    distanceBefore = null;
  }
});

document.addEventListener('htmx:response:error', (event) => {
  const { ctx } = event.detail;
  if (ctx?.response?.status === 401) onRefused(ctx.request.headers);
});

document.body.addEventListener('connected', () => {
  refreshList();
  conversation?.sendAgain();
});

// Browsers allow few connections to one server, so tabs that nobody sees give theirs back after a while.
let hiddenTimer = null;

document.addEventListener('visibilitychange', () => {
  clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = setTimeout(() => {
      conversation?.pause();
      conversation?.forgetGrowing({ isJoining: conversation.runs.size > 0 });
    }, HIDDEN_GRACE_MS);
  } else {
    conversation?.reconnect();
    refreshList();
  }
});

addEventListener('online', () => conversation?.reconnect());
addEventListener('pageshow', (event) => event.persisted && location.reload());
setInterval(() => {
  if (document.hidden) return;
  refreshList();
  // What its children do is not in its own log.
  if (find('#family')) conversation?.refreshHead().catch(() => {});
}, LIST_EVERY_MS);

// Shows the content that the server rendered, and brings it to life.
function startPage(html) {
  stopPage();
  find('#page').innerHTML = html;
  htmx.process(find('#page'));
  adopt();
  restoreOpened();
  showTimes();
  if (matchMedia('(pointer: fine)').matches) find('#message')?.focus();
}

function stopPage() {
  conversation?.close();
  conversation = null;
  document.title = 'Antiphon';
  document.body.classList.remove('is-list-shown');
  find('#page').replaceChildren();
}
