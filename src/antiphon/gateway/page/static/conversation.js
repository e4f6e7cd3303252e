// One session on the page: its entries, and the messages that are on their way to it.
//
// Following: the page carries the last `seq` that it shows, fetches what comes after it whenever the connection hints
// at something, and drops an entry whose `seq` is not higher. So each message is shown once, whatever happens to the
// connection. Only pieces of a reply that is being written come by the connection itself.
'use strict';

const RETRY_FIRST_MS = 300;
const RETRY_LONGEST_MS = 5000;
const NEAR_END_PIXELS = 80;
const HEAD_EVENTS = ['session_changed', 'run_started', 'run_finished', 'tool_result', 'approval_requested', 'approval_resolved'];

// Another person who signs in to this tab must not find, nor send, what the one before them typed.
const draftName = (key) => `draft:${outbox.author}:${key}`;

// What was typed and not sent yet; this tab keeps it over a reload.
class Draft {
  constructor(key) {
    this.name = draftName(key);
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
    // The newest reply that is shown, and how far the hints of the connection have come.
    this.replySeq = this.lastSeq;
    this.hintedSeq = 0;
    this.isFollowed = false;
    this.taking = Promise.resolve();
    this.failures = 0;
    this.retry = null;
    this.reloading = null;
    this.isClosed = false;
    this.isAtEnd = true;
    // Sent, and not among the entries yet.
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
    clearTimeout(this.reloading);
    this.sizes.disconnect();
  }

  // Following

  open() {
    if (this.isClosed) return;
    live.follow(this.key);
    this.catchUp();
  }

  // What came before this stands in the log already, also if its hint or its pieces are still to come.
  onFollowed(seq) {
    this.noteFollowed(true);
    this.hintedSeq = Math.max(this.hintedSeq, seq);
    this.catchUp();
  }

  // Whether the connection hints at everything that happens here.
  noteFollowed(isFollowed) {
    this.isFollowed = isFollowed;
    this.element.classList.toggle('is-followed', isFollowed);
  }

  // Hints and pieces of replies are taken in their order, each after what the one before it has fetched.
  onEvent(message) {
    this.taking = this.taking.then(() => !this.isClosed && this.takeEvent(message));
  }

  async takeEvent({ event, payload, seq }) {
    if (event === 'session.delta') {
      // A piece of a reply that is shown whole already.
      if (this.hintedSeq < this.replySeq) return;
      if (!this.runs.has(payload.runId)) await this.catchUp();
      this.grow(payload);
    } else if (event === 'session.delay') {
      this.showDelay(payload.delay);
    } else {
      this.hintedSeq = Math.max(this.hintedSeq, seq ?? 0);
      if (!seq || seq > this.lastSeq) await this.catchUp();
    }
  }

  // Pieces of a reply may be lost while nobody listens, so the growing text begins anew.
  onLost() {
    this.noteFollowed(false);
    this.forgetGrowing({ isJoining: this.runs.size > 0 });
    this.catchUp();
  }

  // Fetches what the log holds after the last entry shown; again if it is asked for meanwhile. Tries again by itself
  // while the gateway is away.
  catchUp() {
    this.isBehind = true;
    this.fetching ??= this.fetchEntries().finally(() => {
      this.fetching = null;
      if (this.isBehind && !this.isClosed && !this.retry) this.catchUp();
    });
    return this.fetching;
  }

  async fetchEntries() {
    clearTimeout(this.retry);
    this.retry = null;
    while (this.isBehind && !this.isClosed) {
      this.isBehind = false;
      try {
        const query = new URLSearchParams({ session: this.key, after: this.lastSeq });
        const { entries, seq, hasMore, reset } = await call('GET', `/page/entries?${query}`);
        this.failures = 0;
        if (this.isClosed) return;
        if (reset) {
          this.reload();
          return;
        }
        for (const entry of entries) this.take(entry);
        // What this reader may not see is behind them, too.
        this.lastSeq = Math.max(this.lastSeq, seq);
        this.isBehind ||= hasMore;
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        this.onProblem(problem);
      }
    }
  }

  onProblem({ status }) {
    if (this.isClosed || status === 401) return;
    if (status === 404) {
      this.onGone();
      return;
    }
    this.failures += 1;
    const delay = Math.min(RETRY_FIRST_MS * 2 ** (this.failures - 1), RETRY_LONGEST_MS);
    this.retry = setTimeout(() => this.catchUp(), delay);
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
        if (this.growingRun !== entry.runId) this.forgetGrowing();
        break;
      case 'assistant_message':
        this.replySeq = entry.seq;
        this.forgetGrowing();
        break;
      case 'approval_requested':
        if (entry.runId) find('#delay', this.element).textContent = 'waits for approval';
        break;
      case 'approval_resolved':
        find('#delay', this.element).textContent = '';
        break;
      case 'run_finished':
        this.runs.delete(entry.runId);
        if (this.growingRun === entry.runId || !this.runs.size) this.forgetGrowing();
        break;
    }
    if (entry.html) this.append(entry.html);
    if (entry.type === 'run_started') this.markStarted(entry.runId);
    this.showRuns();
    if (HEAD_EVENTS.includes(entry.type)) this.refreshHead().catch(() => {});
    refreshLists();
  }

  grow({ runId, text, restart }) {
    if (!this.runs.has(runId)) return;
    if (restart) {
      this.forgetGrowing();
      return;
    }
    this.growingRun = runId;
    if (this.growing.hidden) this.grown = this.isJoining ? '… ' : '';
    this.grown += text;
    if (this.growing.hidden) {
      this.growing.hidden = false;
      this.showRuns();
    }
    this.drawing ??= setTimeout(() => requestAnimationFrame(() => this.draw()), this.pauseMs);
  }

  // At most once for each picture of the screen; a long text, which takes long to lay out, more seldom.
  draw() {
    this.drawing = null;
    if (this.growing.hidden) return;
    const began = performance.now();
    find('.body', this.growing).textContent = this.grown;
    this.keepUp();
    this.pauseMs = 4 * (performance.now() - began);
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
    this.growingRun = null;
    this.pauseMs = 0;
    this.growing.hidden = true;
    this.grown = '';
    find('.body', this.growing).textContent = '';
  }

  // Begins anew with what the server shows now. Nothing but success ends the trying: what comes later belongs to a
  // conversation that is not shown yet.
  async reload() {
    if (this.isClosed) return;
    clearTimeout(this.reloading);
    try {
      await show(this.key, { isFocused: document.activeElement === this.input });
    } catch {
      this.reloading = setTimeout(() => this.reload(), RETRY_LONGEST_MS);
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
      cancel.textContent = 'Stop';
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
    this.catchUp();
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
    button.textContent = 'Stopping…';
    try {
      const { cancelled } = await call('POST', sessionPath(this.key, '/cancel'));
      if (!cancelled) {
        await Promise.all([...this.runs].map((run) => call('POST', `/runs/${encodeURIComponent(run)}/cancel`)));
      }
    } catch (problem) {
      this.showProblem(`Not stopped: ${problem.message}`);
    }
    button.disabled = false;
    button.textContent = 'Stop';
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
    showTitle();
  }
}

function daySeparator(title) {
  const separator = document.createElement('li');
  separator.className = 'day';
  separator.textContent = title;
  return separator;
}
