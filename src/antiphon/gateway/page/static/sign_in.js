// Lets the page in. A link's code becomes a cookie, which scripts cannot read, and the page's secret, which no other
// origin can read (the storage is one of scheme, host and port); every request of the page carries both.
'use strict';

const SECRET_NAME = 'antiphon.page';
const LOAD_AGAIN_MS = 1500;
// A tab learns of a sign-out from the storage or from a refusal, whichever comes first: one text for both.
const SIGNED_OUT = 'You are signed out: this browser was signed out in another tab or elsewhere, or was not used for a week.';

const pageSecret = () => localStorage.getItem(SECRET_NAME);

function pageHeaders() {
  const secret = pageSecret();
  return secret ? { 'Antiphon-Page': secret } : {};
}

function showSignIn({ state = '', problem = '', isHelping = true } = {}) {
  for (const [id, text] of [['#sign-in-state', state], ['#sign-in-problem', problem]]) {
    find(id).textContent = text;
    find(id).hidden = !text;
  }
  find('#sign-in-help').hidden = !isHelping;
  find('#sign-in').hidden = false;
}

// Takes everything away that was shown, and says how to come back. What was typed stays in this tab.
function signedOut(problem) {
  stopPage();
  showSignIn({ problem });
}

// For a refusal: the secret is worthless, unless another tab has signed in anew meanwhile.
function onRefused(headers) {
  if (pageSecret() && pageSecret() !== headers['Antiphon-Page']) {
    location.reload();
    return;
  }
  localStorage.removeItem(SECRET_NAME);
  leaveIfIn();
}

// A tab that signed out itself, or has said so already, has nothing more to say.
function leaveIfIn() {
  if (find('#sign-in').hidden) signedOut(SIGNED_OUT);
}

// Whether the code let this browser in.
async function signIn(code) {
  showSignIn({ state: 'Signing in…', isHelping: false });
  let response;
  try {
    response = await fetch('/auth/exchange', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...pageHeaders() },
      body: JSON.stringify({ code }),
    });
  } catch {
    showSignIn({ problem: 'Antiphon cannot be reached. Check that it is running, then reload this page. The link was not used and still works.' });
    history.replaceState(null, '', `/#code=${encodeURIComponent(code)}`);
    return false;
  }
  if (response.ok) {
    localStorage.setItem(SECRET_NAME, (await response.json()).pageSecret);
    return true;
  }
  if (pageSecret()) return true;
  const reason = response.status === 403
    ? 'This link was already used, or has expired.'
    : `Signing in failed (${response.status}).`;
  showSignIn({ problem: `${reason} Ask an owner for a new one. On the computer that runs Antiphon, “${find('#sign-in-command').textContent}” prints one for the owner.` });
  return false;
}

async function load() {
  const headers = pageHeaders();
  if (!headers['Antiphon-Page']) {
    signedOut('');
    return;
  }
  let response = null;
  let text = '';
  try {
    response = await fetch(`/page${location.search}`, { headers });
    text = await response.text();
  } catch {
    response = null;
  }
  if (response === null || response.status >= 500) {
    showSignIn({ problem: 'Antiphon cannot be reached. Trying again…', isHelping: false });
    setTimeout(load, LOAD_AGAIN_MS);
    return;
  }
  find('#sign-in').hidden = true;
  if (response.status === 401) {
    onRefused(headers);
  } else if (response.headers.get('Content-Type')?.startsWith('text/html')) {
    startPage(text);
  } else {
    showSignIn({ problem: JSON.parse(text).error.message, isHelping: false });
  }
}

async function start() {
  const code = decodeURIComponent(location.hash.slice(1).replace(/^[a-z]+=/, ''));
  if (code) {
    history.replaceState(null, '', location.pathname + location.search);
    if (!(await signIn(code))) return;
  }
  await load();
}

addEventListener('hashchange', () => location.hash.length > 1 && start());
addEventListener('storage', (event) => {
  if (event.key !== SECRET_NAME) return;
  if (event.newValue) location.reload();
  else leaveIfIn();
});

start();
