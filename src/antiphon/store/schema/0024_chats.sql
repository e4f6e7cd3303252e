-- The accounts of channels with loops of their own: how far each was read, and which process serves it.
CREATE TABLE channel_accounts (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  -- The platform's immutable id of the account, and its name there; NULL until it was reached.
  platform_id TEXT,
  name TEXT,
  -- The next position to ask for; NULL before the first message.
  position BIGINT,
  -- The process that serves it, until when, and the number of its turn: grows with each takeover.
  process TEXT,
  served_until BIGINT NOT NULL DEFAULT 0,
  fence BIGINT NOT NULL DEFAULT 0,
  -- Why it is not served; NULL if it is.
  trouble TEXT,
  PRIMARY KEY (channel, account)
) $without_rowid;
-- What came in, once each, with its first answer.
CREATE TABLE arrivals (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  platform_id TEXT NOT NULL,
  -- `posted | command | waiting | ignored | pressed`.
  outcome TEXT NOT NULL,
  session BIGINT,
  message_id TEXT,
  seq BIGINT,
  run_id TEXT,
  arrived_at BIGINT NOT NULL,
  PRIMARY KEY (channel, account, platform_id)
) $without_rowid;
CREATE INDEX arrivals_by_time ON arrivals (arrived_at);
-- Senders who wait until the owner admits them. `message` is the first message, as JSON; NULL once it is over.
CREATE TABLE pairings (
  id TEXT PRIMARY KEY,
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  platform_id TEXT NOT NULL,
  name TEXT NOT NULL,
  code_hash TEXT NOT NULL,
  recipient TEXT NOT NULL,
  thread_id TEXT,
  message TEXT,
  -- `open | approved | refused | expired`.
  state TEXT NOT NULL,
  told_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  decided_by TEXT,
  decided_at BIGINT
) $without_rowid;
CREATE INDEX pairings_by_sender ON pairings (channel, account, platform_id, created_at);
CREATE INDEX pairings_by_state ON pairings (state, id);
-- Codes by which an account is linked to a person: of `/link`, and of the first start.
CREATE TABLE link_codes (
  code_hash TEXT PRIMARY KEY,
  person TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
) $without_rowid;
CREATE INDEX link_codes_by_time ON link_codes (expires_at);
-- Wrong codes of a sender: after five the sender waits for an hour.
CREATE TABLE wrong_codes (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  platform_id TEXT NOT NULL,
  count INTEGER NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (channel, account, platform_id)
) $without_rowid;
-- Which agent and session a chat uses, if not those of the settings. `peer` is `direct:<id>` or `group:<id>`.
CREATE TABLE routes (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  peer TEXT NOT NULL,
  -- '' for the chat itself.
  thread TEXT NOT NULL DEFAULT '',
  agent_id TEXT,
  session_key TEXT,
  -- Grows with each change, so that two editors do not overwrite one another.
  version BIGINT NOT NULL DEFAULT 1,
  changed_by TEXT NOT NULL,
  changed_at BIGINT NOT NULL,
  PRIMARY KEY (channel, account, peer, thread)
) $without_rowid;
-- Groups of channels. `group_id` names it in keys and stays; `address` is the platform's present id.
CREATE TABLE groups_of_channels (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  group_id TEXT NOT NULL,
  address TEXT NOT NULL,
  title TEXT NOT NULL,
  -- `asked | allowed | refused | left`.
  state TEXT NOT NULL,
  added_by TEXT,
  decided_by TEXT,
  decided_at BIGINT,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (channel, account, group_id)
) $without_rowid;
CREATE UNIQUE INDEX groups_by_address ON groups_of_channels (channel, account, address);
