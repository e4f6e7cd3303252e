-- The account that wants to be linked by a code, and waits until the maker of the code agrees.
ALTER TABLE link_codes ADD COLUMN channel TEXT;
ALTER TABLE link_codes ADD COLUMN account TEXT;
ALTER TABLE link_codes ADD COLUMN platform_id TEXT;
ALTER TABLE link_codes ADD COLUMN name TEXT;
