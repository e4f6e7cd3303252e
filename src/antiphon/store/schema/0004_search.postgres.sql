CREATE TABLE message_words (
  rowid BIGINT PRIMARY KEY,
  words tsvector NOT NULL
);
CREATE INDEX message_words_by_word ON message_words USING GIN (words) WITH (fastupdate = off);

-- The same call as in SQLite: the rows with all words of a query.
CREATE FUNCTION message_words(query TEXT) RETURNS TABLE (rowid BIGINT) LANGUAGE sql STABLE AS
  'SELECT w.rowid FROM message_words w WHERE w.words @@ replace(replace(query, '' AND '', '' & ''), '' OR '', '' | '')::tsquery';
