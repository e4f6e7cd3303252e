-- What cut a run's reply short, if anything did; and how many of its tokens are estimated, because its provider does not count.
ALTER TABLE runs ADD COLUMN cut TEXT;
ALTER TABLE runs ADD COLUMN estimated_tokens BIGINT NOT NULL DEFAULT 0;
