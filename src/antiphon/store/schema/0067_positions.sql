-- How far an account was read, in the words of its platform; one for each chat where the platform counts in chats, or
-- one for the account, whose chat is empty. Until now it was a number for each account. Contract: channels 1.
CREATE TABLE channel_positions (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  chat TEXT NOT NULL,
  position TEXT NOT NULL,
  PRIMARY KEY (channel, account, chat)
) $without_rowid;
INSERT INTO channel_positions (channel, account, chat, position)
  SELECT channel, account, '', CAST(position - 1 AS TEXT) FROM channel_accounts WHERE position IS NOT NULL;
ALTER TABLE channel_accounts DROP COLUMN position;
