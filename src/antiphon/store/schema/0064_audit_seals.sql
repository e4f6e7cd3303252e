-- Denials of the last minute, counted before each becomes a row of its process's chain.
CREATE TABLE audit_denials (
  process TEXT NOT NULL,
  caller TEXT NOT NULL,
  digest TEXT NOT NULL,
  content TEXT NOT NULL,
  first_at BIGINT NOT NULL,
  count BIGINT NOT NULL,
  PRIMARY KEY (process, caller, digest)
) $without_rowid;
CREATE INDEX audit_denials_oldest ON audit_denials (first_at);

-- The heads that changed since the seal before, put into one, which is kept apart from the home as well.
CREATE TABLE audit_seals (
  n BIGINT NOT NULL PRIMARY KEY,
  created_at BIGINT NOT NULL,
  heads TEXT NOT NULL,
  hash $blob NOT NULL
) $without_rowid;

-- The newest sealed head of each chain.
CREATE TABLE audit_sealed (
  chain TEXT NOT NULL PRIMARY KEY,
  number BIGINT NOT NULL,
  hash $blob NOT NULL
) $without_rowid;
