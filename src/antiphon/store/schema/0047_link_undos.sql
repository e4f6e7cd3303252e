-- Accounts that a code has linked, for as long as their senders may undo it. Contract: access 3.
CREATE TABLE link_undos (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  platform_id TEXT NOT NULL,
  -- The guest who was merged; NULL if the account was nobody's.
  source TEXT,
  survivor TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (channel, account, platform_id)
) $without_rowid;
-- What was the guest's before: a row of the table and column in `place`, by its key as text.
CREATE TABLE link_undo_rows (
  source TEXT NOT NULL,
  place TEXT NOT NULL,
  key TEXT NOT NULL,
  -- What must not have changed since, or was the guest's part: a version, the last event, or bytes.
  value BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (source, place, key)
) $without_rowid;
