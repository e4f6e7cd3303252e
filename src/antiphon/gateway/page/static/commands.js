// Commands typed into the message box, such as `/status`: the gateway carries them out and answers at once.
'use strict';

// What may be a command; the gateway knows. Two slashes send text that begins with one.
const COMMAND_LIKE = /^\/[A-Za-z]+(\s|$)/;

// Returns false for text that is no command, which is then a message like any other.
async function runCommand(conversation, text) {
  const { isCommand, answer } = await call('POST', sessionPath(conversation.key, '/command'), { text });
  if (isCommand) showCommandAnswer(conversation, text, answer);
  return isCommand;
}

function showCommandAnswer(conversation, text, answer) {
  const shown = find('#command-answer', conversation.element);
  find('b', shown).textContent = text;
  find('.plain', shown).textContent = answer;
  shown.hidden = false;
  conversation.toEnd();
}
