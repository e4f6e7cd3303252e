-- What owners confirmed of tools that others wrote, by the hash of what makes up each tool.
CREATE TABLE tool_reviews (
  sha256 TEXT NOT NULL PRIMARY KEY,
  source TEXT NOT NULL,
  tool TEXT NOT NULL,
  effects TEXT NOT NULL,
  reviewed_at BIGINT NOT NULL,
  reviewed_by TEXT NOT NULL
) $without_rowid;
CREATE INDEX tool_reviews_by_source ON tool_reviews (source);
