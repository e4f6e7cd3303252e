-- SHA-256 over the row and the hash before it in its session. Null in events from before, which `sessions.covered`
-- covers. Contract: flow 12.
ALTER TABLE events ADD COLUMN hash $blob;
-- The person over whom the hash was made, if the event's person became another one since; else null.
ALTER TABLE events ADD COLUMN hashed_person TEXT;

-- The hash of the log's last event.
ALTER TABLE sessions ADD COLUMN head $blob;
-- The hash before the oldest event that is kept; null if that is the first of all.
ALTER TABLE sessions ADD COLUMN chain_from $blob;
-- The last event without a hash of its own, and the one hash over all up to it.
ALTER TABLE sessions ADD COLUMN unchained_seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN covered $blob;
-- Of a fork: the event of the other log with whose hash it begins.
ALTER TABLE sessions ADD COLUMN fork_source BIGINT;
ALTER TABLE sessions ADD COLUMN fork_seq BIGINT;

-- What processes decided that is no event of a session, a chain a process.
CREATE TABLE audit_chains (
  process TEXT NOT NULL PRIMARY KEY,
  last_n BIGINT NOT NULL,
  head $blob NOT NULL
) $without_rowid;
CREATE TABLE audit_rows (
  process TEXT NOT NULL,
  n BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  kind TEXT NOT NULL,
  content TEXT NOT NULL,
  count BIGINT NOT NULL,
  hash $blob NOT NULL,
  PRIMARY KEY (process, n)
) $without_rowid;
CREATE INDEX audit_rows_newest ON audit_rows (created_at);
