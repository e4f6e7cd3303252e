// Brings the page to life. The server renders; htmx fetches the list and earlier messages; `live.js` hears what has
// changed, `conversation.js` shows a session, `outbox.js` sends, `approvals.js` decides,
// `commands.js` carries out commands, `admitting.js` lets people in.
'use strict';

const STALE_MS = 1000;
const LIST_PAUSE_MS = 150;
const LIST_EVERY_MS = 1000;

const find = (selector, root = document) => root.querySelector(selector);
const findAll = (selector, root = document) => root.querySelectorAll(selector);

let conversation = null;
let outbox = null;

// The list

let listTimer = null;
let listedAt = -LIST_EVERY_MS;

// Soon, and not again within a second: where much happens, lists change all the time. A tab that nobody sees waits
// until it is seen.
function refreshLists() {
  if (document.hidden) return;
  listTimer ??= setTimeout(() => {
    listTimer = null;
    listedAt = performance.now();
    find('#sessions')?.dispatchEvent(new Event('sessions-changed'));
    refreshView().catch(() => {});
    // A session's own log shows neither what its children do nor that it has its first child.
    conversation?.refreshHead().catch(() => {});
  }, Math.max(LIST_PAUSE_MS, listedAt + LIST_EVERY_MS - performance.now()));
}

// Which sessions are opened, and how many of their children are shown: `name` or `name:count`, with commas. The server
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
  const group = sessionStorage.getItem('group');
  if (group && group !== find('#group').value) {
    find('#group').value = group;
    find('#sessions').dispatchEvent(new Event('sessions-changed'));
  }
  const missing = stored.map((part) => part.split(':')).filter(([row]) => !here.has(row));
  if (missing.length) writeOpened(new Map([...missing, ...here]));
}

// The list has the last `seq` of the log.
function checkLog() {
  const current = find('#sessions a[aria-current]');
  if (!conversation || !current || current.dataset.key !== conversation.key) return;
  if (Number(current.dataset.lastSeq) > conversation.lastSeq) conversation.catchUp();
}

// Shows a session. Raises `Problem` and leaves everything as it is if it cannot be fetched.
async function show(key, { isFocused = false, isPushed = false, at } = {}) {
  await openMain(contentAddress(key, at), isPushed && pageAddress(key, at));
  if (isFocused) find('#message')?.focus();
}

// Shows a view. Its name and parameters stand in the query of its address in the page.
async function showView(address) {
  const { searchParams } = new URL(address, location.href);
  await openMain(viewAddress(searchParams), `/?${searchParams}`);
  find('#main').focus({ preventScroll: true });
  // The number beside Home is of the moment in which Home is shown.
  refreshLists();
}

// What the gateway said instead of the main part that was asked for.
let refusal = '';

// One after the other; of those that wait only the last one is opened.
function openMain(content, address) {
  const number = (openNumber += 1);
  const turn = opening.then(() => (number === openNumber ? loadMain(content, address) : undefined));
  opening = turn.catch(() => {});
  return turn;
}

let opening = Promise.resolve();
let openNumber = 0;

async function loadMain(content, address) {
  const before = find('#main').firstElementChild;
  const push = address ? { push: address } : {};
  await htmx.ajax('GET', content, { target: '#main', select: '#main', swap: 'outerHTML', ...push });
  const problem = refusal;
  refusal = '';
  if (problem) throw new Problem(problem);
  if (find('#main').firstElementChild === before) throw new Problem('The gateway cannot be reached.', { isPassing: true });
  adopt();
}

function viewAddress(searchParams) {
  const { view, ...others } = Object.fromEntries(searchParams);
  return `/page/${encodeURIComponent(view)}?${new URLSearchParams(others)}`;
}

// Brings what the view shows up to date; what is typed into it stays.
async function refreshView({ isAsked = false } = {}) {
  const view = find('#view');
  if (!view || (isStill(view) && !isAsked)) return;
  const number = (viewNumber += 1);
  const { text } = await call('GET', viewAddress(viewParams()));
  if (find('#view') !== view || number !== viewNumber) return;
  const template = document.createElement('template');
  template.innerHTML = text;
  const fresh = find('#view', template.content);
  await keepCards(view, fresh);
  keepBranches(view, fresh);
  showTimes(template.content);
  if (find('#view') !== view || number !== viewNumber) return;
  await htmx.swap({ sourceElement: view, target: view, text: fresh.innerHTML, swap: 'innerMorph' });
  for (const card of findAll('.entry.approval', view)) markOwn(card);
}

let viewNumber = 0;

// Home is also what `/` shows when anything needs the reader.
function viewParams() {
  const params = new URLSearchParams(location.search);
  params.set('view', find('#view').dataset.view);
  return params;
}

function adopt() {
  for (const card of findAll('#view .entry.approval')) markOwn(card);
  showTimes(find('#main'));
  const element = find('#conversation');
  if (!element && !find('#view')) location.reload();
  if (conversation?.element === element) return;
  conversation?.close();
  conversation = element?.dataset.key ? new Conversation(element) : null;
  if (!conversation || conversation.isClosed) live.follow(null);
  showTitle();
}

// The tab's title: how much needs the reader, and what is shown.
function showTitle() {
  const count = Number(find('#needs')?.value ?? 0);
  const badge = find('#needs-badge');
  if (badge) {
    badge.textContent = count;
    badge.hidden = !count;
  }
  const title = find('#title, #view-title')?.textContent;
  document.title = `${count ? `(${count}) ` : ''}${title ? `${title} · ` : ''}Antiphon`;
}

function markCurrent() {
  for (const link of findAll('#sessions a')) {
    if (link.dataset.key === conversation?.key) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  for (const link of findAll('.views a')) {
    if (new URL(link.href).searchParams.get('view') === find('#view')?.dataset.view) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
}

// What is not sent yet

// Says what is the case now, and nothing that was.
function showBanner() {
  const banner = find('#connection');
  if (!banner) return;
  const text = conversation?.isGone ? 'This session was deleted. Choose another one in the list.' : outbox.state;
  if (find('span', banner).textContent !== text) find('span', banner).textContent = text;
  const isElsewhere = outbox.messages.some((message) => message.key !== conversation?.key);
  find('button', banner).hidden = !isElsewhere;
  banner.hidden = !text && !isElsewhere;
}

function showOutbox() {
  conversation?.showWaiting();
  showBanner();
  const list = find('#unsent-list');
  const template = find('#unsent-message').content;
  list.replaceChildren(...outbox.messages.map((message) => {
    const item = template.cloneNode(true).firstElementChild;
    const link = find('a', item);
    link.href = pageAddress(message.key);
    link.dataset.key = message.key;
    link.textContent = message.key;
    find('.preview', item).textContent = message.text.slice(0, 300);
    find('.why', item).textContent = message.problem || 'Will be sent when the gateway is back.';
    find('[data-action="try-again"]', item).hidden = !message.problem;
    for (const button of findAll('button', item)) button.dataset.id = message.id;
    return item;
  }));
  if (!outbox.messages.length) find('#unsent').close();
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
  const button = find('#ask-yes');
  find('#ask-title').replaceChildren(...[title].flat());
  find('#ask-text').textContent = text ?? '';
  find('#ask-text').hidden = !text;
  find('#ask-field').hidden = field === undefined;
  find('#ask-field span').textContent = field ?? '';
  find('#ask-input').value = value;
  button.textContent = yes;
  find('#ask-no').textContent = no;
  button.classList.toggle('danger', isDangerous);
  find('#ask-problem').hidden = true;
  find('form', dialog).onsubmit = async (event) => {
    if (event.submitter?.value !== 'yes') return;
    event.preventDefault();
    button.disabled = true;
    try {
      await act(find('#ask-input').value.trim());
      dialog.close();
    } catch (problem) {
      find('#ask-problem').textContent = problem.message;
      find('#ask-problem').hidden = false;
    }
    button.disabled = false;
  };
  dialog.showModal();
  if (field !== undefined) find('#ask-input').select();
  else button.focus();
}

// What buttons do

const actions = {
  async show(link, event) {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    document.body.classList.remove('is-list-shown');
    find('#unsent').close();
    find('#approvals').close();
    if (link.dataset.key === conversation?.key) return;
    await show(link.dataset.key, { isPushed: true, isFocused: matchMedia('(pointer: fine)').matches });
  },
  async jump(link, event) {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    document.body.classList.remove('is-list-shown');
    const { session, seq } = link.dataset;
    const isHere = session === conversation?.sessionId && conversation.mark(seq);
    if (!isHere) await show(session, { at: seq, isPushed: true });
  },
  async view(link, event) {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    document.body.classList.remove('is-list-shown');
    await showView(link.href);
  },
  'show-list': () => document.body.classList.add('is-list-shown'),
  'hide-list': () => document.body.classList.remove('is-list-shown'),
  more(button) {
    find('#shown').value = button.dataset.shown;
    find('#sessions').dispatchEvent(new Event('sessions-changed'));
  },
  filter(button) {
    find('#which').value = button.dataset.which;
    find('#shown').value = button.dataset.shown;
    find('#sessions').dispatchEvent(new Event('sessions-changed'));
  },
  group(button) {
    find('#group').value = button.dataset.group;
    sessionStorage.setItem('group', button.dataset.group);
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
    const others = Number(busy) ? ` The work of sessions below it stops too (${busy} at work).` : '';
    ask({
      title: ['Stop the work of “', isolated(title), '”?'],
      text: `Its run ends. Everything that it has written so far is kept.${others}`,
      yes: 'Stop it',
      no: 'Keep it running',
      isDangerous: true,
      async act() {
        await call('POST', sessionPath(key, '/cancel'));
        refreshLists();
        conversation?.refreshHead().catch(() => {});
      },
    });
  },
  async 'new-chat'(button) {
    find('#agents')?.hidePopover();
    button.disabled = true;
    try {
      const session = await call('POST', '/sessions', {
        agentId: button.dataset.agent,
        source: { kind: 'api', platform: 'web' },
      });
      document.body.classList.remove('is-list-shown');
      await show(session.key, { isPushed: true, isFocused: true });
      refreshLists();
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
    refreshLists();
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
        sessionStorage.removeItem(draftName(key));
        for (const message of outbox.of(key)) await outbox.remove(message);
        location.assign('/');
      },
    });
  },
  'try-again': (button) => outbox.tryAgain(button.dataset.id),
  'take-back'(button) {
    const message = outbox.find(button.dataset.id);
    if (!message) return;
    outbox.settle(message.id);
    conversation.takeBack(message);
  },
  discard: (button) => outbox.settle(button.dataset.id),
  'show-unsent': () => find('#unsent').showModal(),
  dismiss: (button) => button.closest('dialog').close(),
  cancel: () => conversation.cancel(),
  decide: (button) => decide(button),
  async 'to-approve'() {
    await showRequests();
    const dialog = find('#approvals');
    dialog.onclose = () => find('#approvals-list').replaceChildren();
    dialog.showModal();
  },
  async 'to-admit'() {
    find('#admitting-problem').hidden = true;
    await showWaitingPeople();
    find('#admitting').showModal();
  },
  admit: (button) => admit(button),
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
  async standing() {
    await showStanding();
    find('#standing').showModal();
  },
  async 'revoke-standing'(button) {
    button.disabled = true;
    try {
      await call('DELETE', `/standing-approvals/${encodeURIComponent(button.dataset.id)}`);
    } catch (problem) {
      // It may have been revoked or have ended meanwhile; the list says so.
      if (problem.status !== 404) {
        find('#standing-problem').textContent = problem.message;
        find('#standing-problem').hidden = false;
      }
    }
    await showStanding();
  },
  async trusted() {
    await showTrusted();
    find('#trusted').showModal();
  },
  async 'revoke-trusted'(button) {
    button.disabled = true;
    try {
      const query = new URLSearchParams({ sessionKey: button.dataset.session });
      await call('DELETE', `/trusted-content/${encodeURIComponent(button.dataset.id)}?${query}`);
    } catch (problem) {
      // It may have been revoked meanwhile; the list says so.
      if (problem.status !== 404) {
        find('#trusted-problem').textContent = problem.message;
        find('#trusted-problem').hidden = false;
      }
    }
    await showTrusted();
  },
  async 'foreign-tools'() {
    await showForeignTools();
    find('#foreign-tools').showModal();
  },
  async 'confirm-tools'(button) {
    const section = button.closest('[data-source]');
    const tools = [...section.querySelectorAll('[data-unreviewed]')].map((each) => {
      const boxes = [...each.querySelectorAll('input')];
      const named = { name: each.dataset.name, sha256: each.dataset.sha256 };
      return boxes.length ? { ...named, effects: boxes.filter((box) => box.checked).map((box) => box.value) } : named;
    });
    await reviewTools(button, () => call('POST', '/tool-reviews', { source: section.dataset.source, tools }));
  },
  async 'withdraw-tools'(button) {
    const { source } = button.closest('[data-source]').dataset;
    await reviewTools(button, () => call('DELETE', `/tool-reviews/${encodeURIComponent(source)}`));
  },
  async 'trust-skill'(button) {
    const { skill, sha256 } = button.closest('[data-skill]').dataset;
    await reviewTools(button, () => call('POST', `/skills/${encodeURIComponent(skill)}/trust`, { sha256 }));
  },
  'remove-skill'(button) {
    const { skill } = button.closest('[data-skill]').dataset;
    ask({
      title: 'Remove the skill?',
      text: `${skill} is deleted from the gateway's home, and no agent is offered it any more.`,
      yes: 'Remove',
      isDangerous: true,
      act: () => reviewTools(button, () => call('DELETE', `/skills/${encodeURIComponent(skill)}`)),
    });
  },
  async 'sign-out'() {
    if (!outbox.messages.length) {
      await signOut();
      return;
    }
    ask({
      title: 'Sign out?',
      text: `${counted(outbox.messages.length)} in this browser will be deleted without being sent.`,
      yes: 'Sign out',
      isDangerous: true,
      act: signOut,
    });
  },
};

async function signOut() {
  await call('POST', '/auth/sign-out');
  await outbox.clear();
  localStorage.removeItem(SECRET_NAME);
  sessionStorage.clear();
  history.replaceState(null, '', '/');
  signedOut('');
}

async function showBrowsers() {
  const { text } = await call('GET', '/page/browsers');
  find('#browsers-list').innerHTML = text;
  showTimes(find('#browsers-list'));
}

async function showStanding() {
  const { text } = await call('GET', '/page/standing');
  find('#standing-list').innerHTML = text;
  showTimes(find('#standing-list'));
}

async function showForeignTools() {
  const [tools, skills] = await Promise.all([call('GET', '/page/foreign-tools'), call('GET', '/page/skills')]);
  find('#foreign-tools-list').innerHTML = tools.text;
  find('#skills-list').innerHTML = skills.text;
}

// A tool that changed meanwhile, or does nothing, is refused; what is ticked stays.
async function reviewTools(button, act) {
  const said = find('#foreign-tools-problem');
  said.hidden = true;
  button.disabled = true;
  try {
    await act();
    await showForeignTools();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    said.textContent = problem.message;
    said.hidden = false;
    button.disabled = false;
  }
}

async function showTrusted() {
  const { text } = await call('GET', '/page/trusted');
  find('#trusted-list').innerHTML = text;
  showTimes(find('#trusted-list'));
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
  const { request } = event.detail.ctx;
  Object.assign(request.headers, pageHeaders());
  repeatable.set(request, Date.now());
});

document.addEventListener('htmx:finally:request', (event) => repeatable.delete(event.detail.ctx.request));

// Earlier messages come in above; what is being read stays where it is.
let distanceBefore = null;

document.addEventListener('htmx:before:swap', (event) => {
  const { response, text } = event.detail.ctx;
  const isPage = response?.headers.get('Content-Type')?.startsWith('text/html');
  if (response?.status >= 400 && (!isPage || event.target.closest?.('#sidebar, .older'))) {
    event.preventDefault();
    if (!isPage && event.target.id === 'main') refusal = JSON.parse(text).error.message;
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
  showBanner();
  showTimes(find('#sidebar'));
  showTitle();
  refreshRequests().catch(() => {});
  checkLog();
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

document.body.addEventListener('gateway-away', showBanner);
document.body.addEventListener('gateway-back', () => {
  showBanner();
  refreshLists();
  outbox.send();
});

// A tab that is seen again, and a computer that woke, may have missed anything, and wait for answers that never come.
function comeBack(patienceMs) {
  if (document.hidden || !find('.app')) return;
  giveUp(Date.now() - patienceMs);
  live.check();
  conversation?.catchUp();
  refreshLists();
}

document.addEventListener('visibilitychange', () => comeBack(STALE_MS));
addEventListener('online', () => {
  comeBack(0);
  outbox?.send();
});
addEventListener('pageshow', (event) => event.persisted && location.reload());
// Shows the content that the server rendered, and brings it to life.
function startPage(html) {
  stopPage();
  find('#page').innerHTML = html;
  htmx.process(find('#page'));
  const { author } = find('.app').dataset;
  if (outbox && outbox.author !== author) {
    location.reload();
    return;
  }
  outbox ??= new Outbox(author, {
    onChange: () => find('#unsent') && showOutbox(),
    onSent: (message, posted) => message.key === conversation?.key && conversation.onSent(message, posted),
  });
  outbox.send();
  live.start();
  adopt();
  showOutbox();
  restoreOpened();
  showTimes();
  if (matchMedia('(pointer: fine)').matches) find('#message')?.focus();
}

function stopPage() {
  live.stop();
  conversation?.close();
  conversation = null;
  document.title = 'Antiphon';
  document.body.classList.remove('is-list-shown');
  find('#page').replaceChildren();
}
