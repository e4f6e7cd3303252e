// Messages that the gateway has not confirmed yet, of all sessions. They are kept in IndexedDB by session and message
// id, so they outlive a reload, the tab and the gateway's absence. Every tab sends them; their ids make that harmless.
'use strict';

const SEND_AGAIN_FIRST_MS = 500;
const SEND_AGAIN_LONGEST_MS = 5000;
const SENT_SHOWN_MS = 4000;

// The browser's storage of messages: `{id, key, text, deliver, at, problem}`, the oldest first. Each author has one: what a person
// typed for one home must never go to another home at the same address, nor as another person's words.
class StoredMessages {
  constructor(author) {
    this.name = `antiphon.outbox.${author}`;
  }

  open() {
    this.opening ??= new Promise((done, fail) => {
      const request = indexedDB.open(this.name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore('outbox', { keyPath: ['key', 'id'] });
      request.onsuccess = () => done(request.result);
      request.onerror = () => fail(request.error);
    });
    return this.opening;
  }

  async use(mode, act) {
    const database = await this.open();
    return new Promise((done, fail) => {
      const transaction = database.transaction('outbox', mode, { durability: 'strict' });
      const request = act(transaction.objectStore('outbox'));
      transaction.oncomplete = () => done(request.result);
      transaction.onerror = transaction.onabort = () => fail(transaction.error);
    });
  }

  async list() {
    const messages = await this.use('readonly', (store) => store.getAll());
    return messages.sort((one, other) => one.at - other.at);
  }

  put(message) {
    return this.use('readwrite', (store) => store.put(message));
  }

  remove({ key, id }) {
    return this.use('readwrite', (store) => store.delete([key, id]));
  }
}

class Outbox {
  // `onChange()` after every change, `onSent(message, posted)` when the gateway has stored a message.
  constructor(author, { onChange, onSent }) {
    this.author = author;
    this.onChange = onChange;
    this.onSent = onSent;
    this.stored = new StoredMessages(author);
    this.messages = [];
    this.version = 0;
    this.sent = 0;
    this.failures = 0;
    this.last = 0;
    this.others = new BroadcastChannel(this.stored.name);
    this.others.onmessage = () => this.read();
    this.read().then(() => this.send());
  }

  of(key) {
    return this.messages.filter((message) => message.key === key);
  }

  find(id) {
    return this.messages.find((message) => message.id === id);
  }

  get refused() {
    return this.messages.filter((message) => message.problem);
  }

  get waiting() {
    return this.messages.filter((message) => !message.problem);
  }

  // A browser that stores nothing still sends, as long as the tab is open.
  async read() {
    try {
      let version;
      let messages;
      do {
        version = this.version;
        messages = await this.stored.list();
      } while (version !== this.version);
      this.messages = messages;
    } catch (error) {
      console.warn('The browser does not keep unsent messages.', error);
    }
    this.onChange();
  }

  async put(message) {
    this.version += 1;
    this.messages = [...this.messages.filter((other) => other.id !== message.id), message];
    this.onChange();
    await this.keep(() => this.stored.put(message));
  }

  async remove(message) {
    this.version += 1;
    this.messages = this.messages.filter((other) => other.id !== message.id);
    this.onChange();
    await this.keep(() => this.stored.remove(message));
  }

  async keep(act) {
    try {
      await act();
      this.others.postMessage('changed');
    } catch (error) {
      console.warn('The browser does not keep unsent messages.', error);
    }
  }

  // Times are unequal, so that messages keep their order.
  // `deliver` also sends the message and its answer through the session's channel.
  post(key, id, text, deliver) {
    this.last = Math.max(Date.now(), this.last + 1);
    this.put({ key, id, text, deliver, at: this.last, problem: '' });
    this.send();
  }

  tryAgain(id) {
    const message = this.find(id);
    if (message) this.put({ ...message, problem: '' });
    this.send();
  }

  // One at a time, oldest first. Goes on until all are sent or refused; tries again by itself while the gateway is away.
  // A session that cannot take its message now holds up its own messages and no others.
  async send() {
    if (this.isSending || !pageSecret()) return;
    this.isSending = true;
    clearTimeout(this.retry);
    const held = new Map();
    const next = () => this.waiting.find((message) => !held.has(message.key));
    try {
      for (let message = next(); message; message = next()) {
        const problem = await this.deliver(message);
        if (problem) held.set(message.key, problem);
      }
      this.failures = held.size ? this.failures + 1 : 0;
      if (held.size) this.sendAgain(Math.max(...[...held.values()].map((problem) => problem.waitMs)));
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      this.failures += 1;
      if (problem.isPassing) this.sendAgain(problem.waitMs);
    } finally {
      this.isSending = false;
      this.onChange();
    }
  }

  sendAgain(waitMs) {
    const pause = Math.min(SEND_AGAIN_FIRST_MS * 2 ** (this.failures - 1), SEND_AGAIN_LONGEST_MS);
    this.retry = setTimeout(() => this.send(), Math.max(pause, waitMs));
  }

  // Returns the `Problem` if the message has to wait, and raises it if all have to. A message that is refused for good
  // keeps the reason and stays.
  async deliver(message) {
    try {
      const { key, id, text, deliver } = message;
      const body = { text, messageId: id, ...(deliver && { deliver }) };
      const posted = await call('POST', sessionPath(key, '/messages'), body, { mayRepeat: true });
      this.onSent(message, posted);
      if (this.failures) this.noteSent();
      await this.remove(message);
    } catch (problem) {
      if (!(problem instanceof Problem) || problem.status === 401 || gateway.isAway) throw problem;
      if (problem.isPassing) return problem;
      if (this.find(message.id)) await this.put({ ...message, problem: problem.message });
    }
    return null;
  }

  // There is nothing more to send: the log holds the message, or its author took it back.
  settle(id) {
    const message = this.find(id);
    if (message) this.remove(message);
  }

  noteSent() {
    this.sent += 1;
    clearTimeout(this.forgetting);
    this.forgetting = setTimeout(() => {
      this.sent = 0;
      this.onChange();
    }, SENT_SHOWN_MS);
  }

  async clear() {
    for (const message of this.messages) await this.remove(message);
  }

  // What the banner says; empty if all is well.
  get state() {
    const waiting = this.waiting.length;
    const refused = this.refused.length;
    if (gateway.isAway) {
      return waiting
        ? `The gateway is away. ${counted(waiting)} will be sent when it is back.`
        : 'The gateway is away. Reconnecting…';
    }
    if (waiting && this.failures) return `Sending ${counted(waiting)}…`;
    if (refused) return `${counted(refused)} could not be sent.`;
    return this.sent ? `${counted(this.sent)} sent.` : '';
  }
}

const counted = (count) => `${count} message${count === 1 ? '' : 's'}`;
