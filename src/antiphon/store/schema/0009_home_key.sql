-- One row: the secret of which the keys for seals and fences are made. All processes of a home share it.
CREATE TABLE home_keys (
  id SMALLINT PRIMARY KEY,
  secret TEXT NOT NULL
);

-- By which reading of texts, with their secrets taken out, a log was indexed; one of an older reading is indexed again.
ALTER TABLE indexed_logs ADD COLUMN reading INTEGER NOT NULL DEFAULT 0;
