-- What an owner trusts of what a session has read: content by its hash, in that session alone.
CREATE TABLE trusted_content (
  session BIGINT NOT NULL REFERENCES sessions(id),
  sha256 TEXT NOT NULL,
  actor TEXT NOT NULL,
  tool TEXT,
  first_words TEXT NOT NULL,
  level SMALLINT NOT NULL DEFAULT 0,
  compartments BIGINT NOT NULL DEFAULT 0,
  person TEXT,
  approval TEXT NOT NULL,
  trusted_at BIGINT NOT NULL,
  trusted_by TEXT NOT NULL,
  PRIMARY KEY (session, sha256)
) $without_rowid;

-- What a request's run had read that it does not trust; null for one that was asked in a trusted context.
ALTER TABLE approvals ADD COLUMN sources TEXT;
-- Whether it was given on a question that was asked in an untrusted context.
ALTER TABLE standing_approvals ADD COLUMN counts_untrusted SMALLINT NOT NULL DEFAULT 0;
