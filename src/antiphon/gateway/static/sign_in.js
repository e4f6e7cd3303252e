// Exchanges the code in the link's fragment for a cookie. The fragment never reaches a server or its logs.
'use strict';

const state = document.getElementById('sign-in-state');
const problem = document.getElementById('sign-in-problem');

function fail(text) {
  state.hidden = true;
  problem.textContent = text;
  problem.hidden = false;
}

async function signIn(code) {
  state.hidden = false;
  let response;
  try {
    response = await fetch('/auth/exchange', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ code }),
    });
  } catch {
    fail('Antiphon cannot be reached. Is it running? Reload this page once it is; the link was not used.');
    history.replaceState(null, '', `/#code=${encodeURIComponent(code)}`);
    return;
  }
  if (response.ok) {
    location.replace('/');
  } else if (response.status === 403) {
    fail('This link was used already, or it is older than ten minutes. Type “antiphon open” for another.');
  } else {
    fail(`Signing in failed (${response.status}). Type “antiphon open” for another link.`);
  }
}

function start() {
  const code = decodeURIComponent(location.hash.slice(1).replace(/^[a-z]+=/, ''));
  if (!code) return;
  history.replaceState(null, '', '/');
  signIn(code);
}

addEventListener('hashchange', start);
start();
