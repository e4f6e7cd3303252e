-- Whether a sandboxed session is among those that caused it: then nothing that comes of it runs a command on the host.
ALTER TABLE runs ADD COLUMN is_sandboxed SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE exchanges ADD COLUMN is_sandboxed SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE reports ADD COLUMN is_sandboxed SMALLINT NOT NULL DEFAULT 0;
-- Of what is under way nobody knows any more what caused it.
UPDATE runs SET is_sandboxed = 1
  WHERE (ended_at IS NULL OR is_parked = 1) AND COALESCE(exchange, report, announces, continues, chain) IS NOT NULL;
UPDATE exchanges SET is_sandboxed = 1 WHERE stage <> 'done';
UPDATE reports SET is_sandboxed = 1 WHERE stage NOT IN ('done', 'kept');
