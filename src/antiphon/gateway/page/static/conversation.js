// One session on the page: its entries, its stream, and the messages that are on their way to it.
//
// Following: the page carries the last `seq` that it shows, the stream brings what comes after it, and an entry
// whose `seq` is not higher is dropped. So each message is shown once, whatever happens to the connection. A browser
// has six connections to a host, so only a tab that is seen has a stream.
'use strict';

const RETRY_FIRST_MS = 300;
const RETRY_LONGEST_MS = 5000;
const NEAR_END_PIXELS = 80;
const HEAD_EVENTS = ['session_changed', 'run_started', 'run_finished', 'tool_result', 'approval_requested', 'approval_resolved'];

// What was typed and not sent yet; this tab keeps it over a reload.
class Draft {
  constructor(key) {
    this.name = `draft:${key}`;
    const stored = JSON.parse(sessionStorage.getItem(this.name) ?? '{}');
    this.text = stored.text ?? '';
    this.tried = stored.tried ?? null;
  }

  // `tried` is the id and text of a message that was taken back.
  set(text, tried = this.tried) {
    this.text = text;
    this.tried = tried;
    try {
      if (text) sessionStorage.setItem(this.name, JSON.stringify({ text, tried }));
      else sessionStorage.removeItem(this.name);
    } catch {
      // Too long for the browser's storage: it stays in the text box.
    }
  }

  // Takes the text out. Unchanged text goes under its first id, so a message that did arrive is not doubled.
  take() {
    const text = this.text.trim();
    const id = this.tried?.text === text ? this.tried.id : `web-${randomId()}`;
    this.set('', null);
    return { id, text };
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
    this.waiting = find('#waiting', element);
    this.growing = find('#growing', element);
    this.draft = new Draft(this.key);
    this.stream = null;
    this.failures = 0;
    this.retry = null;
    this.isClosed = false;
    this.isAtEnd = true;
    // Sent, and not in the stream yet.
    this.arriving = new Map();
    this.listen();
    this.arrange();
    this.showRuns();
    this.showDraft();
    for (const entry of findAll('[data-message-id]', this.entries)) outbox.settle(entry.dataset.messageId);
    this.showWaiting();
    this.toEnd();
    this.forgetGrowing({ isJoining: this.runs.size > 0 });
    if (element.dataset.at) this.mark(element.dataset.at);
    if ('ended' in element.dataset) this.close();
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
      if (this.isAtEnd) find('#to-end', this.element).hidden = true;
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
    if (this.stream || this.isClosed || document.hidden) return;
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
    this.failures = 0;
    gateway.note(false);
  }

  // Pieces of a reply may be lost while nobody listens, so the growing text begins anew.
  onError() {
    this.pause();
    this.forgetGrowing({ isJoining: this.runs.size > 0 });
    this.failures += 1;
    const delay = Math.min(RETRY_FIRST_MS * 2 ** (this.failures - 1), RETRY_LONGEST_MS);
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.reconnect(), delay);
  }

  // Asks first, because a stream that fails does not say why.
  async reconnect() {
    if (this.stream || this.isClosed || document.hidden) return;
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
    this.isGone = true;
    this.input.readOnly = true;
    showBanner();
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
      case 'approval_requested':
        find('#delay', this.element).textContent = 'waits for approval';
        break;
      case 'approval_resolved':
        find('#delay', this.element).textContent = '';
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
    this.settleRequest(entry);
    markOwn(entry);
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
    for (const decision of findAll('.entry.decision', this.entries)) this.settleRequest(decision);
    for (const entry of findAll('.entry[data-principal]', this.entries)) markOwn(entry);
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

  // The card of a request that was decided, here or elsewhere, has nothing left to decide.
  settleRequest(decision) {
    if (!decision.matches('.decision')) return;
    const card = find(`.entry.approval[data-approval="${CSS.escape(decision.dataset.approval)}"]`, this.entries);
    if (card) settleCard(card, decision.dataset.status);
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
    this.element.classList.toggle('is-asking', find('#delay', this.element).textContent === 'waits for approval');
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

  // Shows a message that was searched for. False if it is not on the page.
  mark(seq) {
    for (const marked of findAll('.marked', this.entries)) marked.classList.remove('marked');
    const entry = find(`.entry[data-seq="${CSS.escape(seq)}"]`, this.entries);
    if (!entry) return false;
    this.isAtEnd = false;
    entry.classList.add('marked');
    entry.scrollIntoView({ block: 'center' });
    return true;
  }

  // Stays at the end if it was there; else says that there is more below.
  keepUp() {
    if (this.isAtEnd) this.toEnd();
    else find('#to-end', this.element).hidden = false;
  }

  // Sending

  send() {
    if (!this.draft.text.trim() || this.isClosed || this.isTooLong()) return;
    const { id, text } = this.draft.take();
    this.input.value = '';
    this.fit();
    this.showProblem('');
    this.isAtEnd = true;
    find('#command-answer', this.element).hidden = true;
    const post = () => outbox.post(this.key, id, text, Boolean(find('#deliver', this.element)?.checked));
    if (COMMAND_LIKE.test(text)) this.tryCommand({ id, text }, post);
    else post();
  }

  // A command that was not carried out goes back into the text box.
  async tryCommand(message, post) {
    try {
      if (!(await runCommand(this, message.text))) post();
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      this.takeBack(message);
      this.showProblem(problem.message);
    }
  }

  onSent(message, posted) {
    if (posted.seq <= this.lastSeq) return;
    if (posted.runId) this.runs.add(posted.runId);
    this.arriving.set(message.id, message);
    this.showRuns();
  }

  onStored(messageId) {
    this.arriving.delete(messageId);
    outbox.settle(messageId);
    this.showWaiting();
    const { tried, text } = this.draft;
    if (tried?.id !== messageId || tried.text !== text.trim()) return;
    this.draft.set('', null);
    this.input.value = '';
    this.fit();
  }

  // The messages that the log does not hold yet, below those that it does.
  showWaiting() {
    const waiting = outbox.of(this.key).filter((message) => !this.arriving.has(message.id));
    const shown = [...this.arriving.values(), ...waiting];
    const template = find('#waiting-entry').content;
    this.waiting.replaceChildren(...shown.map((message) => {
      const entry = template.cloneNode(true).firstElementChild;
      const isOnItsWay = this.arriving.has(message.id) || (!message.problem && !outbox.failures);
      find('.plain', entry).textContent = message.text;
      find('.why', entry).textContent = isOnItsWay ? '' : message.problem ? `Not sent: ${message.problem}` : 'Not sent yet.';
      entry.classList.toggle('refused', Boolean(message.problem));
      find('[data-action="try-again"]', entry).hidden = !message.problem;
      find('[data-action="take-back"]', entry).hidden = isOnItsWay;
      for (const button of findAll('button', entry)) button.dataset.id = message.id;
      return entry;
    }));
    if (shown.length) this.keepUp();
  }

  // Puts the message back into the text box, before what was typed since.
  takeBack(message) {
    const typed = this.input.value.trim();
    this.input.value = [message.text, typed].filter(Boolean).join('\n');
    this.draft.set(this.input.value, { id: message.id, text: message.text });
    this.fit();
    this.input.focus();
  }

  // With what was typed before this script was here.
  showDraft() {
    this.input.value = [this.draft.text, this.input.value].filter(Boolean).join('\n');
    this.draft.set(this.input.value);
    this.fit();
    find('#send', this.element).disabled = false;
  }

  // Says so before it is sent. A character has at most three bytes for each unit of its length.
  isTooLong() {
    const longest = Number(this.input.dataset.longestBytes);
    const { value } = this.input;
    const size = 3 * value.length <= longest ? 0 : new Blob([value]).size;
    const megabytes = (bytes) => (bytes / 1048576).toFixed(1).replace('.0', '');
    const problem = find('#length-problem', this.element);
    problem.hidden = size <= longest;
    problem.textContent = problem.hidden
      ? ''
      : `This text is too long to send: it has ${megabytes(size)} MB, and a message can have ${megabytes(longest)} MB. Shorten it or send it in parts.`;
    return !problem.hidden;
  }

  fit() {
    this.isTooLong();
    if (CSS.supports('field-sizing', 'content')) return;
    this.input.style.height = 'auto';
    this.input.style.height = `${this.input.scrollHeight}px`;
  }

  showProblem(text) {
    const problem = find('#send-problem', this.element);
    problem.hidden = !text;
    problem.textContent = text;
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
