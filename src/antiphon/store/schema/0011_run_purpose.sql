-- What a run is for, said once where it is queued.
ALTER TABLE runs ADD COLUMN purpose TEXT NOT NULL DEFAULT 'message';

UPDATE runs SET purpose = CASE
    WHEN announces IS NOT NULL THEN 'announce'
    WHEN exchange IS NOT NULL THEN COALESCE(
        (SELECT CASE
            WHEN e.request_run = runs.id THEN 'request'
            WHEN e.stage = 'announce' THEN 'exchange_announce'
            ELSE 'exchange_turn'
        END FROM exchanges e WHERE e.id = runs.exchange),
        'exchange_turn')
    WHEN report IS NOT NULL THEN 'child'
    ELSE 'message'
END
WHERE announces IS NOT NULL OR exchange IS NOT NULL OR report IS NOT NULL;
