// People who wait to be admitted to a channel, and groups that are not allowed yet: owners decide.
'use strict';

async function showWaitingPeople() {
  const { text } = await call('GET', '/page/admitting');
  find('#admitting-list').innerHTML = text;
  showTimes(find('#admitting-list'));
}

// `address` is the operation that decides. Anybody decided about meanwhile is not in the list any more.
async function admit(button) {
  const { address, body } = button.dataset;
  const problem = find(button.closest('#view') ? '#view-problem' : '#admitting-problem');
  problem.hidden = true;
  button.disabled = true;
  try {
    await call('POST', address, body ? JSON.parse(body) : {});
  } catch (refused) {
    if (!(refused instanceof Problem)) throw refused;
    problem.textContent = refused.message;
    problem.hidden = false;
  }
  if (find('#admitting').open) await showWaitingPeople();
  refreshLists();
}
