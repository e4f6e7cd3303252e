// Requests for approval: cards in the transcript and in the list of those to approve, and what was decided.
'use strict';

// What the reader wrote or asked: the page does not tell them their own name, and nobody below owner decides it.
function markOwn(entry) {
  const isOwn = entry.dataset.principal === find('.app').dataset.principal;
  if (!isOwn) return;
  entry.classList.add('own');
  const label = find(':scope > .unseen', entry);
  if (label && entry.matches('.user')) label.textContent = 'You:';
}

function settleCard(card, status) {
  find('.decide', card).hidden = true;
  find('.others-decide', card).hidden = true;
  find('.problem', card).hidden = true;
  find('.state', card).textContent = status;
}

// One decision for all calls, or one for each where some are not ticked; and what is trusted with it.
function decisionOf(button, card) {
  const { word, trust } = button.dataset;
  const trusted = { ...(trust ? { trust: trust.split(' ') } : {}), ...(button.dataset.accept ? { accept: true } : {}) };
  if (button.matches('.of-some')) {
    const ticks = [...findAll('.pick input', card)];
    return { decisions: ticks.map((each) => ({ callId: each.value, decision: each.checked ? word : 'deny' })), ...trusted };
  }
  return { decision: word, ...trusted };
}

async function decide(button) {
  const card = button.closest('.entry');
  const note = find('.note', card).value.trim();
  const problem = find('.problem', card);
  const buttons = findAll('.decide button', card);
  for (const each of buttons) each.disabled = true;
  problem.hidden = true;
  try {
    await call('POST', `/approvals/${encodeURIComponent(card.dataset.approval)}`, { ...decisionOf(button, card), ...(note ? { note } : {}) });
    if (card.closest('#approvals, #view')) settleCard(card, button.dataset.state);
  } catch (refused) {
    if (!(refused instanceof Problem)) throw refused;
    if (refused.status === 409) settleCard(card, 'decided');
    problem.textContent = refused.message;
    problem.hidden = false;
  }
  for (const each of buttons) each.disabled = false;
  refreshLists();
}

async function showRequests() {
  const { text } = await call('GET', '/page/approvals');
  const list = find('#approvals-list');
  list.innerHTML = text;
  for (const card of findAll('.entry.approval', list)) markOwn(card);
  showTimes(list);
}

// Cards that were decided elsewhere say so. A note that is being written, and what was refused, stays.
async function refreshRequests() {
  const dialog = find('#approvals');
  if (!dialog?.open) return;
  const { text } = await call('GET', '/page/approvals');
  const template = document.createElement('template');
  template.innerHTML = text;
  const open = new Set([...findAll('.entry.approval', template.content)].map((card) => card.dataset.approval));
  const shown = new Set();
  for (const card of findAll('.entry.approval', dialog)) {
    shown.add(card.dataset.approval);
    if (!open.has(card.dataset.approval) && !find('.decide', card).hidden) settleCard(card, await wordsOfDecision(card.dataset.approval));
  }
  const list = find('.requests', dialog);
  const news = [...findAll('.entry.approval', template.content)].filter((card) => !shown.has(card.dataset.approval));
  if (news.length && !list) {
    await showRequests();
    return;
  }
  for (const card of news) markOwn(card);
  list?.prepend(...news);
  showTimes(dialog);
}

// Cards stay in a view that is brought up to date: with the note that is being written, and with what others decided.
// One whose run was stopped goes: there is nothing to learn from it.
async function keepCards(view, fresh) {
  const list = find('.requests', fresh) ?? find('.requests', view)?.cloneNode(false);
  for (const card of findAll('.requests > .entry.approval', view)) {
    const same = find(`#${CSS.escape(card.id)}`, fresh);
    if (same) {
      const note = find('.note', card);
      if (note.value) find('.note', same).setAttribute('value', note.value);
      for (const each of findAll('.pick input', card)) find(`.pick input[value="${each.value}"]`, same)?.toggleAttribute('checked', each.checked);
      continue;
    }
    const settled = card.cloneNode(true);
    if (!find('.decide', settled).hidden) {
      const words = await wordsOfDecision(card.dataset.approval);
      if (words === 'withdrawn' && !find('.note', card).value) continue;
      settleCard(settled, words);
    }
    list.append(settled);
  }
  if (list && !list.isConnected && list.childElementCount && !fresh.contains(list)) {
    find('.column', fresh).append(list);
    find('.column > .nothing', fresh)?.remove();
  }
}

// What was decided about a request, and by whom.
async function wordsOfDecision(id) {
  try {
    const { status, calls, decidedByName, decidedBy } = await call('GET', `/approvals/${encodeURIComponent(id)}`);
    if (status !== 'decided') return status;
    const said = [...new Set(calls.map((each) => find('.app').getAttribute(`data-told-${each.decision}`)))].join(', ');
    return `${said} by ${decidedByName ?? decidedBy}`;
  } catch {
    return 'decided elsewhere';
  }
}
