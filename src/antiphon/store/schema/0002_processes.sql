-- Programs that share the database. A run belongs to the process that claimed it, for as long as that lives.
CREATE TABLE processes (
  id TEXT PRIMARY KEY,
  role TEXT NOT NULL,
  host TEXT NOT NULL,
  pid BIGINT NOT NULL,
  version TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  agents TEXT NOT NULL,
  beats BIGINT NOT NULL DEFAULT 0,
  started_at BIGINT NOT NULL
) $without_rowid;
ALTER TABLE runs ADD COLUMN process TEXT;
