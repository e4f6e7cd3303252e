-- What each migration said when it was applied, so that a database of another build is told from ours.
CREATE TABLE schema_hashes (
  version INTEGER PRIMARY KEY,
  hash TEXT NOT NULL
);
