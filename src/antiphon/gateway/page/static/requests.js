// Requests to the gateway, and whether it answers. Everything else that says “away” reads it here.
'use strict';

const REQUEST_TIMEOUT_MS = 20000;
const AWAY_STATUSES = [502, 503, 504];

// `isPassing`: the same request may succeed later.
class Problem extends Error {
  constructor(message, { isPassing = false, status = 0, waitMs = 0 } = {}) {
    super(message);
    this.isPassing = isPassing;
    this.status = status;
    this.waitMs = waitMs;
  }
}

const gateway = {
  isAway: false,
  note(isAway) {
    if (isAway === this.isAway) return;
    this.isAway = isAway;
    document.body.dispatchEvent(new Event(isAway ? 'gateway-away' : 'gateway-back'));
  },
};

// Requests under way that may be repeated, with the time at which they began.
const repeatable = new Map();

// Gives up those that began before: their connections may have died while the network was away or the computer slept.
function giveUp(before) {
  for (const [stop, began] of repeatable) if (began <= before) stop.abort();
}

// Requests that only read `mayRepeat`, and others that the gateway recognises.
async function call(method, path, body, { mayRepeat = method === 'GET' } = {}) {
  const headers = pageHeaders();
  const stop = new AbortController();
  const request = { method, headers, signal: AbortSignal.any([AbortSignal.timeout(REQUEST_TIMEOUT_MS), stop.signal]) };
  if (mayRepeat) repeatable.set(stop, Date.now());
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
    if (!stop.signal.aborted) gateway.note(true);
    const reason = error.name === 'TimeoutError' ? 'The gateway did not answer in time.' : 'The gateway cannot be reached.';
    throw new Problem(reason, { isPassing: true });
  } finally {
    repeatable.delete(stop);
  }
  const { ok, status } = response;
  gateway.note(AWAY_STATUSES.includes(status));
  if (ok) return answer;
  if (status === 401) onRefused(headers);
  const message = answer.error?.message ?? `The gateway answered with status ${status}.`;
  const waitMs = 1000 * (Number(response.headers.get('Retry-After')) || 0);
  throw new Problem(message, { isPassing: status >= 500 || status === 429, status, waitMs });
}

const sessionPath = (key, rest = '') => `/sessions/${encodeURIComponent(key)}${rest}`;
const pageQuery = (name, at) => new URLSearchParams({ session: name, ...(at ? { at } : {}) });
const pageAddress = (name, at) => `/?${pageQuery(name, at)}`;
const contentAddress = (name, at) => `/page?${pageQuery(name, at)}`;

function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
