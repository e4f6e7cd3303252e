// This tab's end of the browser's connection: tells the conversation and the lists that something has changed.
// While there is no connection, everything is fetched again every ten seconds.
'use strict';

const POLL_EVERY_MS = 10000;

const live = {
  isOpen: false,
  key: null,
  // What the connection takes; nothing before the tab is signed in.
  send: null,

  start() {
    this.send ??= this.join();
    this.send({ kind: 'hello', secret: pageSecret() });
    if (this.key) this.send({ kind: 'follow', key: this.key });
  },

  join() {
    addEventListener('pagehide', () => this.send({ kind: 'bye' }));
    if (typeof SharedWorker === 'undefined') {
      const connection = new Connection();
      const tab = { key: null, post: (message) => this.take(message) };
      return (message) => connection.take(tab, message);
    }
    const worker = new SharedWorker(document.body.dataset.connection, { name: 'antiphon' });
    worker.port.onmessage = ({ data }) => this.take(data);
    return (message) => worker.port.postMessage(message);
  },

  stop() {
    this.follow(null);
    this.isOpen = false;
    this.send?.({ kind: 'bye' });
  },

  // Also for the session that is followed already: what shows it anew has to hear that it is.
  follow(key) {
    if (!key && !this.key) return;
    this.key = key;
    this.send?.(key ? { kind: 'follow', key } : { kind: 'unfollow' });
  },

  check() {
    this.send?.({ kind: 'check' });
  },

  take(message) {
    switch (message.kind) {
      case 'open':
        this.isOpen = true;
        gateway.note(false);
        refreshLists();
        break;
      case 'lost':
        this.isOpen = false;
        conversation?.onLost();
        refreshLists();
        break;
      case 'followed':
        if (message.key === conversation?.key) conversation.onFollowed(message.seq);
        break;
      case 'event':
        conversation?.onEvent(message);
        break;
      case 'changed':
        if (message.key && message.key === conversation?.key) conversation.catchUp();
        refreshLists();
        break;
    }
  },
};

setInterval(() => {
  if (document.hidden || !find('.app')) return;
  if (!conversation?.isFollowed) conversation?.catchUp();
  // How long something has been at work changes by itself, and what is found by a search a little after it was said.
  if (!live.isOpen || find('.busy') || find('#search-text').value) refreshLists();
}, POLL_EVERY_MS);
