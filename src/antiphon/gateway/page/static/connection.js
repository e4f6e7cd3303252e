// The WebSocket of a browser: one for all its tabs, in a `SharedWorker`; in each tab where there are no such workers.
//
// A tab says who it is (`hello`), which session it shows (`follow`, `unfollow`), that the network or the tab has come
// back (`check`), and that it closes (`bye`). It gets back whether the socket is there (`open`, `lost`), from which `seq`
// on a session is followed (`followed`), what happens in that session (`event`), and that lists have changed
// (`changed`). All of these are hints: what is shown is fetched, so a lost hint loses nothing.
'use strict';

const PROTOCOL = 1;
const FIRST_PAUSE_MS = 300;
const LONGEST_PAUSE_MS = 5000;
const ASK_EVERY_MS = 20000;
const ANSWER_MS = 5000;
const CHECK_MS = 1500;
const PIECES_MS = 30;
const OPEN_MS = 10000;
const REFUSED_CODE = 1008;

class Connection {
  constructor() {
    this.tabs = new Set();
    // The newest `seq` by session key; null until the gateway has answered.
    this.followed = new Map();
    this.answers = new Map();
    // What was written since the tabs were told, by session key.
    this.pieces = new Map();
    this.secret = null;
    this.socket = null;
    this.isOpen = false;
    this.failures = 0;
    this.lastId = 0;
    setInterval(() => this.ask(), ASK_EVERY_MS);
  }

  take(tab, message) {
    switch (message.kind) {
      case 'hello':
        this.greet(tab, message.secret);
        break;
      case 'follow':
        if (tab.key !== message.key) this.unfollow(tab);
        tab.key = message.key;
        this.subscribe(message.key);
        break;
      case 'unfollow':
        this.unfollow(tab);
        break;
      case 'check':
        this.failures = 0;
        if (this.socket) this.ask(CHECK_MS);
        else this.open();
        break;
      case 'bye':
        this.unfollow(tab);
        this.tabs.delete(tab);
        if (!this.tabs.size) this.close();
        break;
    }
  }

  // Another secret belongs to another sign-in, perhaps of another person.
  greet(tab, secret) {
    this.tabs.add(tab);
    if (secret !== this.secret) {
      this.close();
      this.secret = secret;
      this.failures = 0;
    }
    if (this.isOpen) tab.post({ kind: 'open' });
    else this.open();
  }

  unfollow(tab) {
    const { key } = tab;
    tab.key = null;
    if (!key || [...this.tabs].some((other) => other.key === key)) return;
    this.followed.delete(key);
    if (this.isOpen) this.request('sessions.messages.unsubscribe', { key }).catch(() => {});
  }

  // Also if it is followed already: a tab that joins has to know how far the log goes now, to tell the pieces of the
  // reply that is being written from those of the one that it shows.
  async subscribe(key) {
    if (!this.isOpen) return;
    this.followed.set(key, null);
    try {
      const { seq } = await this.request('sessions.messages.subscribe', { key, deltas: true, includeTools: true });
      if (!this.followed.has(key)) return;
      this.followed.set(key, Math.max(seq, this.followed.get(key) ?? 0));
      this.tell(key, { kind: 'followed', key, seq });
    } catch {
      this.followed.delete(key);
    }
  }

  open() {
    clearTimeout(this.again);
    if (this.socket || !this.secret || !this.tabs.size) return;
    const socket = new WebSocket(`${location.protocol === 'https:' ? 'wss:' : 'ws:'}//${location.host}/ws`);
    this.socket = socket;
    const slow = setTimeout(() => this.lose(socket), OPEN_MS);
    socket.onopen = () => this.connect(socket).catch(() => this.lose(socket)).then(() => clearTimeout(slow));
    socket.onmessage = (event) => socket === this.socket && this.read(JSON.parse(event.data));
    socket.onclose = (event) => {
      clearTimeout(slow);
      this.lose(socket, event.code === REFUSED_CODE);
    };
  }

  async connect(socket) {
    await this.request('connect', { protocol: { min: PROTOCOL, max: PROTOCOL }, client: 'page', page: this.secret });
    if (socket !== this.socket) return;
    this.isOpen = true;
    this.failures = 0;
    // A reader who may not decide anything has no requests to follow.
    this.request('approvals.subscribe', { limit: 1 }).catch(() => {});
    this.request('runs.subscribe', { limit: 1 }).catch(() => {});
    await this.request('sessions.subscribe', { limit: 1 });
    this.tell(undefined, { kind: 'open' });
    for (const key of new Set([...this.tabs].map((tab) => tab.key).filter(Boolean))) this.subscribe(key);
  }

  close() {
    const { socket } = this;
    clearTimeout(this.again);
    if (!socket) return;
    this.forget();
    socket.close();
  }

  // Opens another one after a while. One whose sign-in ended is not tried again: the tabs find out, and sign out.
  lose(socket, isRefused = false) {
    if (socket !== this.socket) return;
    this.forget();
    socket.close();
    this.tell(undefined, { kind: 'lost' });
    this.failures += 1;
    const pause = isRefused ? LONGEST_PAUSE_MS : Math.min(FIRST_PAUSE_MS * 2 ** (this.failures - 1), LONGEST_PAUSE_MS);
    this.again = setTimeout(() => this.open(), pause);
  }

  forget() {
    this.socket = null;
    this.isOpen = false;
    this.followed.clear();
    this.pieces.clear();
    for (const answer of this.answers.values()) answer.fail(new Error('The connection was lost.'));
    this.answers.clear();
  }

  // A socket that does not answer has died unnoticed, for example while the computer slept.
  async ask(patienceMs = ANSWER_MS) {
    const { socket } = this;
    if (!socket || !this.isOpen) return;
    const late = setTimeout(() => this.lose(socket), patienceMs);
    await this.request('health.get', {}).catch(() => {});
    clearTimeout(late);
  }

  request(method, params) {
    const id = String((this.lastId += 1));
    return new Promise((done, fail) => {
      this.answers.set(id, { done, fail });
      this.socket.send(JSON.stringify({ type: 'req', id, method, params }));
    });
  }

  read({ type, id, ok, payload, error, event, seq }) {
    if (type === 'res') {
      const answer = this.answers.get(id);
      this.answers.delete(id);
      if (ok) answer?.done(payload);
      else answer?.fail(new Error(error.message));
      return;
    }
    const { sessionKey: key = payload.run?.sessionKey, phase } = payload;
    if (event === 'session.reset') {
      this.tell(key, { kind: 'event', event, payload });
      this.followed.delete(key);
    } else if (event === 'session.delta') {
      this.hold(key, payload);
    } else if (this.followed.has(key) && event.startsWith('session.')) {
      this.release(key);
      if (seq) this.followed.set(key, Math.max(seq, this.followed.get(key) ?? 0));
      this.tell(key, { kind: 'event', event, payload, seq });
    } else {
      this.tell(undefined, { kind: 'changed', event, key, phase });
    }
  }

  // Pieces of a reply wait a little for those that follow, and go together.
  hold(key, payload) {
    const held = this.pieces.get(key);
    if (held && held.runId === payload.runId && !held.restart && !payload.restart) {
      held.text += payload.text;
      return;
    }
    this.release(key);
    this.pieces.set(key, { ...payload });
    setTimeout(() => this.release(key), PIECES_MS);
  }

  release(key) {
    const payload = this.pieces.get(key);
    if (!payload) return;
    this.pieces.delete(key);
    this.tell(key, { kind: 'event', event: 'session.delta', payload });
  }

  // To the tabs that show the session; to all without one.
  tell(key, message) {
    for (const tab of this.tabs) if (key === undefined || tab.key === key) tab.post(message);
  }
}

if (typeof SharedWorkerGlobalScope !== 'undefined') {
  const connection = new Connection();
  self.onconnect = ({ ports: [port] }) => {
    const tab = { key: null, post: (message) => port.postMessage(message) };
    port.onmessage = ({ data }) => connection.take(tab, data);
    port.onclose = () => connection.take(tab, { kind: 'bye' });
  };
}
