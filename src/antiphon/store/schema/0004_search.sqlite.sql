-- `message_words(?)` gives the rows with all words of a query. Words are cut by us: what is not ASCII is never cut here.
CREATE VIRTUAL TABLE message_words USING fts5 (
  words, detail = none, columnsize = 0, tokenize = "ascii tokenchars '_'"
);
