-- Why a run at work waits for its model's provider, as JSON.
ALTER TABLE runs ADD COLUMN delay TEXT;
