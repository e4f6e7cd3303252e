-- Names without differences of case, width and composition, for searches; NULL for a name that has none.
ALTER TABLE sessions ADD COLUMN folded_key TEXT;
ALTER TABLE sessions ADD COLUMN folded_label TEXT;
ALTER TABLE sessions ADD COLUMN folded_display_name TEXT;
