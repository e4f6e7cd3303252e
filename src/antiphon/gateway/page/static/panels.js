// What the views of costs, memory, requests, sessions, tasks, people, routes and tokens do: their forms, their buttons, and opened branches.
'use strict';

const OPENED_RUNS = 'opened-runs';
const STILL_VIEWS = ['costs', 'details', 'memory', 'people', 'routes', 'task', 'tasks', 'tokens'];

// Whether the view changes only when its reader asks: it has forms, or a secret that is shown once.
const isStill = (view) => STILL_VIEWS.includes(view.dataset.view);

// Forms

const isUnchanged = (field) =>
  field.tagName === 'SELECT' ? field.selectedOptions[0]?.defaultSelected : field.value === field.defaultValue;

// The fields as the operation takes them: `name[]` collects, `name.part` goes into an object, an empty field is null.
// A change names only what was changed, and the version that was read.
function fieldsOf(form) {
  const fields = {};
  const isChange = form.dataset.method === 'PATCH';
  for (const field of form.elements) {
    const { name, type } = field;
    if (!name || field.closest('[hidden]') || field.disabled) continue;
    if (type === 'hidden') fields[name] = Number(field.value);
    if (type === 'hidden' || (isChange && isUnchanged(field))) continue;
    if (name.endsWith('[]')) {
      fields[name.slice(0, -2)] ??= [];
      if (field.checked) fields[name.slice(0, -2)].push(field.value);
    } else if (name.includes('.')) {
      const [outer, inner] = name.split('.');
      fields[outer] = field.value ? { [inner]: field.value } : null;
    } else if (type === 'number') {
      fields[name] = field.value ? Number(field.value) : null;
    } else {
      fields[name] = field.value || null;
    }
  }
  return fields;
}

function keepAsSaved(form) {
  for (const field of form.elements) {
    if (field.tagName === 'SELECT') for (const option of field.options) option.defaultSelected = option.selected;
    else if (field.type !== 'hidden') field.defaultValue = field.value;
  }
}

// A form that shows first what would be saved. Any change of it asks for another look.
async function showPreview(form) {
  const { name, trigger, upcoming, prompt } = await call('POST', form.dataset.preview, fieldsOf(form));
  const shown = (tag, text, className = '') => Object.assign(document.createElement(tag), { textContent: text, className, dir: 'auto' });
  const times = shown('span', 'Next: ');
  times.append(...upcoming.flatMap((time, at) => [at ? ', ' : '', shown('span', time.shown, 'unbroken')]));
  find('.preview-of', form).replaceChildren(shown('b', name), shown('span', trigger.words), times, shown('span', prompt));
  setPreviewed(form, true);
}

function setPreviewed(form, isPreviewed) {
  const button = find('[data-after]', form);
  find('.preview-of', form).hidden = !isPreviewed;
  button.textContent = isPreviewed ? button.dataset.after : button.dataset.before;
}

const needsPreview = (form) => Boolean(form.dataset.preview) && find('.preview-of', form).hidden;

function tellProblem(element, problem) {
  if (!(problem instanceof Problem)) throw problem;
  element.textContent = problem.message;
  element.hidden = false;
}

async function submitForm(form) {
  const problem = find('.problem', form);
  const { method, address, shows, done } = form.dataset;
  problem.hidden = true;
  for (const button of findAll('button', form)) button.disabled = true;
  try {
    if (needsPreview(form)) {
      await showPreview(form);
      for (const button of findAll('button', form)) button.disabled = false;
      return;
    }
    const answer = await call(method, address, fieldsOf(form));
    if (form.dataset.preview) {
      form.reset();
      setPreviewed(form, false);
    }
    if (form.elements.version) form.elements.version.value = answer.version;
    if (shows) {
      const shown = shows === 'code' ? signInLink(answer.code, answer.publicUrl) : answer[shows];
      showSecret(find('.shown-secret', form), shown, answer.picture);
      form.reset();
      arrangeForm(form);
    }
    if (method === 'POST' && !done && !form.dataset.on) {
      form.reset();
      arrangeForm(form);
    }
    if (done) {
      keepAsSaved(form);
      find('.done', form).textContent = done;
    }
    refreshLists();
    // A form in a list keeps what it says.
    if (!done || (!form.closest('.cards') && find('.view-body .cards'))) await refreshCards();
  } catch (refused) {
    tellProblem(problem, refused);
  }
  for (const button of findAll('button', form)) button.disabled = false;
}

const signInLink = (code, publicUrl) => `${publicUrl ?? location.origin}/#code=${code}`;

function showSecret(element, secret, picture) {
  const image = find('img', element);
  if (image) Object.assign(image, { src: picture ?? '', hidden: !picture });
  find('code', element).textContent = secret;
  element.hidden = false;
}

// A select says which field the next input is, and which parts of the form belong to it.
function arrangeForm(form) {
  for (const select of findAll('select[data-names]', form)) {
    document.getElementById(select.dataset.names).name = select.value;
    for (const part of findAll('[data-only]', form)) part.hidden = !part.dataset.only.split(' ').includes(select.value);
  }
}

// The lists of the view again; what forms show stays.
async function refreshCards() {
  const { text } = await call('GET', viewAddress(new URLSearchParams(location.search)));
  const fresh = new DOMParser().parseFromString(text, 'text/html');
  for (const list of findAll('.view-body .cards')) list.replaceWith(fresh.getElementById(list.id));
  showTimes(find('#view'));
}

// The zone of the browser is proposed; without one, times count in the zone of the settings.
function proposeZone(form) {
  const field = find('[data-fill="zone"]', form);
  if (field && !field.defaultValue) field.defaultValue = Intl.DateTimeFormat().resolvedOptions().timeZone ?? '';
}

document.addEventListener('submit', (event) => {
  if (event.target.dataset.form !== 'call') return;
  event.preventDefault();
  submitForm(event.target);
});

document.addEventListener('change', (event) => {
  const { form } = event.target;
  if (form?.dataset.form !== 'call') return;
  if (form.dataset.on === 'change') submitForm(form);
  else arrangeForm(form);
});

document.addEventListener('input', (event) => {
  if (event.target.form?.dataset.preview) setPreviewed(event.target.form, false);
  const done = event.target.form?.dataset.form === 'call' && find('.done', event.target.form);
  if (done) done.textContent = '';
});

// Branches of a request

const openedRuns = () => new Set((sessionStorage.getItem(OPENED_RUNS) ?? '').split(' ').filter(Boolean));

function noteOpened(run, isOpen) {
  const opened = openedRuns();
  opened.delete(run);
  if (isOpen) opened.add(run);
  sessionStorage.setItem(OPENED_RUNS, [...opened].slice(-200).join(' '));
}

async function fetchRuns(run, after) {
  const query = new URLSearchParams({ run, ...(after ? { after } : {}) });
  const { text } = await call('GET', `/page/tree?${query}`);
  const caused = find('.caused', new DOMParser().parseFromString(text, 'text/html'));
  return [...(caused?.children ?? [])];
}

async function openBranch(button) {
  const branch = find(':scope > .branch', button.closest('li'));
  button.setAttribute('aria-expanded', 'true');
  branch.hidden = false;
  branch.replaceChildren(...await fetchRuns(button.dataset.run));
  showTimes(branch);
  await reopen(branch);
}

// Opens what was open before the view was shown again.
async function reopen(root) {
  const opened = openedRuns();
  for (const button of findAll('.fold-branch[aria-expanded="false"]', root)) {
    if (opened.has(button.dataset.run)) await openBranch(button);
  }
}

// What is open stays in what replaces the view, and is brought up to date.
function keepBranches(view, fresh) {
  const [list, freshList] = [find('.caused', view), find('.caused', fresh)];
  if (list && freshList && find('.rest', freshList)) {
    const known = new Set([...freshList.children].map((item) => item.id));
    const more = [...list.children].filter((item) => item.id && !known.has(item.id));
    const rest = more.length ? list.querySelector(':scope > .rest') : find('.rest', freshList);
    find('.rest', freshList).replaceWith(...[...more, rest].filter(Boolean).map((item) => item.cloneNode(true)));
  }
  for (const button of findAll('.fold-branch[aria-expanded="true"]', view)) {
    const item = find(`#${CSS.escape(button.closest('li').id)}`, fresh);
    const branch = item && find(':scope > .branch', item);
    if (!branch || !find('.fold-branch', item)) continue;
    find('.fold-branch', item).setAttribute('aria-expanded', 'true');
    branch.hidden = false;
    branch.innerHTML = find(':scope > .branch', button.closest('li')).innerHTML;
    updateBranch(branch.closest('li').id, button.dataset.run).catch(() => {});
  }
}

async function updateBranch(id, run) {
  const runs = await fetchRuns(run);
  const item = document.getElementById(id);
  const branch = item && find(':scope > .branch', item);
  if (!branch || branch.hidden || branch.contains(document.activeElement)) return;
  branch.replaceChildren(...runs);
  showTimes(branch);
  await reopen(branch);
}

document.addEventListener('htmx:after:swap', () => {
  const view = find('#view');
  if (!view) return;
  showTimes(view);
  for (const form of findAll('form[data-form="call"]', view)) {
    arrangeForm(form);
    proposeZone(form);
  }
  reopen(view).catch(() => {});
});

// Questions about a session that need not be the one that is shown

async function forkOf(key, seq) {
  const session = await call('POST', sessionPath(key, '/fork'), seq ? { seq: Number(seq) } : {});
  await show(session.key, { isPushed: true, isFocused: true });
  refreshLists();
}

Object.assign(actions, {
  async branch(button) {
    const isOpen = button.getAttribute('aria-expanded') === 'true';
    noteOpened(button.dataset.run, !isOpen);
    if (!isOpen) {
      await openBranch(button);
      return;
    }
    const branch = find(':scope > .branch', button.closest('li'));
    button.setAttribute('aria-expanded', 'false');
    branch.hidden = true;
    branch.replaceChildren();
  },
  async 'more-runs'(button) {
    const runs = await fetchRuns(button.dataset.run, button.dataset.after);
    const item = button.closest('li');
    const list = item.parentElement;
    item.replaceWith(...runs);
    showTimes(list);
    find('a, button', runs[0])?.focus();
  },
  'stop-run'(button) {
    const { run, title, busy } = button.dataset;
    ask({
      title: ['Stop the run of “', isolated(title), '”?'],
      text: `Everything that it has written so far is kept.${Number(busy) ? ' Its sub-agents are stopped too.' : ''}`,
      yes: 'Stop it',
      no: 'Keep it running',
      isDangerous: true,
      async act() {
        await call('POST', `/runs/${encodeURIComponent(run)}/cancel`);
        refreshLists();
        await refreshView({ isAsked: true });
      },
    });
  },
  'fork-at': (button) => forkOf(conversation.sessionId, button.dataset.seq),
  'fork-of': (button) => forkOf(button.dataset.key),
  async 'checkpoint-of'(button) {
    const say = (text) => { find('#checkpoint-said').textContent = text; };
    button.disabled = true;
    say('The conversation is looked back at…');
    try {
      const { checkpointed, changed, error } = await call('POST', sessionPath(button.dataset.key, '/checkpoint'));
      if (checkpointed) await refreshView({ isAsked: true });
      say(checkpointed ? changed ?? 'The conversation was looked back at.' : error ?? 'The checkpoint failed.');
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      say(problem.message);
    }
    button.disabled = false;
  },
  'reset-of'(button) {
    ask({
      title: 'Start over?',
      text: 'A new conversation starts under the same name. This one is kept as an earlier one, and a run in progress is cancelled.',
      yes: 'Start over',
      async act() {
        await call('POST', sessionPath(button.dataset.key, '/reset'));
        refreshLists();
        await refreshView({ isAsked: true });
      },
    });
  },
  'delete-of'(button) {
    const { key, title } = button.dataset;
    ask({
      title: ['Delete “', isolated(title), '”?'],
      text: `${find('#held').textContent.trim().replace(/\s+/g, ' ')} This cannot be undone.`,
      yes: 'Delete',
      isDangerous: true,
      async act() {
        await call('DELETE', sessionPath(key));
        sessionStorage.removeItem(draftName(key));
        for (const message of outbox.of(key)) await outbox.remove(message);
        location.assign('/');
      },
    });
  },
  async 'person-link'(button) {
    const { code, publicUrl } = await call('POST', button.dataset.address, {});
    showSecret(find('#person-link'), signInLink(code, publicUrl));
    find('#person-link').scrollIntoView({ block: 'nearest' });
  },
  async 'person-act'(button) {
    const { address, method = 'POST', body = '{}', question, name, text } = button.dataset;
    const act = async () => {
      await call(method, address, method === 'DELETE' ? undefined : JSON.parse(body));
      await refreshCards();
    };
    if (!question) await act();
    else ask({ title: [`${question} “`, isolated(name), '”?'], text, yes: question, isDangerous: true, act });
  },
  'end-credential'(button) {
    const { id, name } = button.dataset;
    const word = button.textContent.replace('…', '');
    ask({
      title: [`${word} “`, isolated(name), '”?'],
      text: 'Its next request is refused, and its open requests end within a second.',
      yes: word,
      isDangerous: true,
      async act() {
        await call('DELETE', `/tokens/${encodeURIComponent(id)}`);
        await refreshCards();
      },
    });
  },
});
