-- What agents remember. The holder says whose memory it is: `person:<id>`, `group:<channel>:<type>:<id>`, `session:<row>`, or
-- `everyone` for what owners share.
CREATE TABLE notes (
  id TEXT PRIMARY KEY,
  agent_id TEXT NOT NULL,
  holder TEXT NOT NULL,
  text TEXT NOT NULL,
  level SMALLINT NOT NULL DEFAULT 0,
  compartments BIGINT NOT NULL DEFAULT 0,
  integrity SMALLINT NOT NULL DEFAULT 0,
  person TEXT,
  made_by TEXT NOT NULL,
  session BIGINT,
  seq BIGINT,
  -- The call that made it, so that a repeated one does not make a second note.
  call_id TEXT,
  version BIGINT NOT NULL DEFAULT 1,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
) $without_rowid;
CREATE INDEX notes_by_holder ON notes (holder, agent_id, updated_at, id);
CREATE UNIQUE INDEX notes_by_call ON notes (call_id) WHERE call_id IS NOT NULL;

-- The words of notes, as `domain/words` reads them: both databases find the same.
CREATE TABLE note_words (
  note TEXT NOT NULL,
  word TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  holder TEXT NOT NULL,
  PRIMARY KEY (note, word)
) $without_rowid;
CREATE INDEX note_words_by_word ON note_words (holder, agent_id, word, note);

-- What the working memory was made of.
ALTER TABLE incarnations ADD COLUMN memory_level SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE incarnations ADD COLUMN memory_compartments BIGINT NOT NULL DEFAULT 0;
ALTER TABLE incarnations ADD COLUMN memory_integrity SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE incarnations ADD COLUMN memory_person TEXT;
