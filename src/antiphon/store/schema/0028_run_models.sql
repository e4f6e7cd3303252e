-- The model of the run's newest step; NULL for none, and for runs of older versions.
ALTER TABLE runs ADD COLUMN model TEXT;
-- The UTC day on which it ended, counted from 1970-01-01.
ALTER TABLE runs ADD COLUMN ended_on BIGINT;
-- The run that caused it: the one that sent its message or spawned its session, or that it continues.
ALTER TABLE runs ADD COLUMN cause TEXT;

UPDATE runs SET ended_on = ended_at / 86400000 WHERE ended_at IS NOT NULL;
UPDATE runs SET cause = continues WHERE continues IS NOT NULL;
UPDATE runs SET cause = (SELECT CASE WHEN e.request_run = runs.id THEN e.origin_run
    ELSE COALESCE(e.origin_run, e.request_run) END FROM exchanges e WHERE e.id = runs.exchange)
  WHERE exchange IS NOT NULL AND cause IS NULL;
UPDATE runs SET cause = (SELECT t.origin_run FROM reports t WHERE t.id = runs.report)
  WHERE report IS NOT NULL AND purpose = 'child' AND cause IS NULL;
UPDATE runs SET cause = (SELECT t.run FROM reports t WHERE t.id = runs.announces)
  WHERE announces IS NOT NULL AND cause IS NULL;

-- The tree of a request, and the sums of its branches, read this index alone.
CREATE INDEX runs_by_cause ON runs (cause, id, ended_at, is_parked, input_tokens, output_tokens, cost_microusd, session)
  WHERE cause IS NOT NULL;
-- Sums by day, agent, person and model read this index alone.
CREATE INDEX runs_spent ON runs (ended_on, agent_id, principal, model, input_tokens, output_tokens, cached_tokens,
  cost_microusd, session) WHERE ended_on IS NOT NULL;
