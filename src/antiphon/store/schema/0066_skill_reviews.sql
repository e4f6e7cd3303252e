-- What owners decided about skills, by name: the hash of the one that they looked at, and whether they trust it.
CREATE TABLE skill_reviews (
  name TEXT NOT NULL PRIMARY KEY,
  sha256 TEXT NOT NULL,
  is_trusted BIGINT NOT NULL,
  reviewed_at BIGINT NOT NULL,
  reviewed_by TEXT NOT NULL
) $without_rowid;
