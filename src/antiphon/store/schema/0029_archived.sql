-- The filters of the list of sessions, and how many sessions each holds.
CREATE INDEX sessions_archived ON sessions (updated_at, id) WHERE deleted_at IS NULL AND status = 'inactive';
CREATE INDEX sessions_scheduled ON sessions (updated_at, id) WHERE deleted_at IS NULL AND kind = 'cron' AND status <> 'inactive';
