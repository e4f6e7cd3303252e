-- Who let the task ask other agents; it may no longer once they are no owner. Unknown of earlier ones, which stay.
ALTER TABLE tasks ADD COLUMN consult_by TEXT;
