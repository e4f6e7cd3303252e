-- What the place of a run that ended got from it; NULL for runs without a place. Contract: groups 4.
ALTER TABLE runs ADD COLUMN place_got TEXT;
-- Of which causes places of the session were told, until a turn succeeds there.
ALTER TABLE sessions ADD COLUMN told TEXT;
-- Why a text stands in the place of a reply; NULL for all other texts.
ALTER TABLE deliveries ADD COLUMN cause TEXT;
CREATE INDEX deliveries_told ON deliveries (id) WHERE cause IS NOT NULL;
CREATE INDEX deliveries_of_run ON deliveries (run_id) WHERE run_id IS NOT NULL;
