-- The same call as in SQLite: the texts of several rows as one.
CREATE OR REPLACE FUNCTION joined_text(state TEXT, word TEXT, separator TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS
  'SELECT CASE WHEN state IS NULL THEN word ELSE state || separator || word END';
CREATE OR REPLACE AGGREGATE group_concat(TEXT, TEXT) (SFUNC = joined_text, STYPE = TEXT);
