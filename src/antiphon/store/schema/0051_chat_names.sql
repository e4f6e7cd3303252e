-- What platforms call chats: a group's title, the name of the person of a direct chat. Contract: list 2.
CREATE TABLE chat_names (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  -- The platform's present id of the chat.
  address TEXT NOT NULL,
  name TEXT NOT NULL,
  -- As searches compare it; NULL if the name is already folded.
  folded_name TEXT,
  PRIMARY KEY (channel, account, address)
) $without_rowid;
