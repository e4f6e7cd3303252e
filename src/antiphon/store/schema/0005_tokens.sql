-- Tokens for programs that act as one session: named, listed, revoked by their id.
ALTER TABLE tokens ADD COLUMN id TEXT;
ALTER TABLE tokens ADD COLUMN name TEXT;
ALTER TABLE tokens ADD COLUMN session BIGINT;
CREATE UNIQUE INDEX tokens_by_id ON tokens (id) WHERE id IS NOT NULL;
CREATE INDEX tokens_by_session ON tokens (session) WHERE session IS NOT NULL;
