-- A browser holds two secrets: its cookie's (`hash`), and its page's, which no other origin can read.
ALTER TABLE tokens ADD COLUMN page_hash TEXT;
ALTER TABLE tokens ADD COLUMN last_used_at BIGINT;
-- The hash of the owner's token, by which every gateway on the database decides.
CREATE UNIQUE INDEX tokens_of_owner ON tokens (kind) WHERE kind = 'owner';
-- Cookies of before have no second secret, and end.
DELETE FROM tokens WHERE kind IN ('link', 'browser');
