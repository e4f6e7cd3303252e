-- How many bytes each participant wrote into the session, of those that have a share and not all.
ALTER TABLE participants ADD COLUMN stored_bytes BIGINT NOT NULL DEFAULT 0;
CREATE INDEX runs_queued_by_guests ON runs (principal) WHERE status = 'queued' AND principal <> 'owner:owner';
