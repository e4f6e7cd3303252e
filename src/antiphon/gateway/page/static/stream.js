// Server-sent events by fetch, which can carry the page's secret; an `EventSource` cannot.
'use strict';

// The gateway sends a comment every 15 s: a stream that is quiet for longer has died unnoticed.
const QUIET_MS = 45000;

class Stream {
  // `onEvent(name, data)` for each event in order; `onLost()` once, however the stream ends but by `close`.
  constructor(address, lastId, { onOpen, onEvent, onLost }) {
    this.isOpen = false;
    this.isClosed = false;
    this.onOpen = onOpen;
    this.onEvent = onEvent;
    this.stopping = new AbortController();
    this.follow(address, lastId).catch(() => {}).then(() => {
      const wasClosed = this.isClosed;
      this.close();
      if (!wasClosed) onLost();
    });
  }

  close() {
    this.isOpen = false;
    this.isClosed = true;
    clearTimeout(this.quiet);
    this.stopping.abort();
  }

  async follow(address, lastId) {
    this.expect();
    const headers = { ...pageHeaders(), 'Last-Event-ID': String(lastId), Accept: 'text/event-stream' };
    const response = await fetch(address, { headers, cache: 'no-store', signal: this.stopping.signal });
    if (!response.ok) return;
    this.isOpen = true;
    this.onOpen();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      this.expect();
      const searched = Math.max(0, text.length - 1);
      text = this.take(text + value, searched);
    }
  }

  // Dispatches what is whole and gives back the rest. An event ends with an empty line.
  take(text, searched) {
    let start = 0;
    for (let end = text.indexOf('\n\n', searched); end >= 0; end = text.indexOf('\n\n', start)) {
      const fields = {};
      for (const line of text.slice(start, end).split('\n')) {
        const colon = line.indexOf(': ');
        if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
      }
      start = end + 2;
      if (fields.data !== undefined && !this.isClosed) this.onEvent(fields.event, JSON.parse(fields.data));
    }
    return text.slice(start);
  }

  expect() {
    clearTimeout(this.quiet);
    this.quiet = setTimeout(() => this.stopping.abort(), QUIET_MS);
  }
}
