-- Messages of channels that were taken in and wait: for their files, for those before them in their chat, for their pace.
CREATE TABLE held_messages (
  id $serial,
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  recipient TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  platform_id TEXT NOT NULL,
  principal TEXT NOT NULL,
  is_favoured SMALLINT NOT NULL,
  is_counted SMALLINT NOT NULL,
  size BIGINT NOT NULL,
  message TEXT NOT NULL,
  held_at BIGINT NOT NULL,
  due_at BIGINT NOT NULL
);
CREATE INDEX held_messages_by_place ON held_messages (channel, account, recipient, thread_id);
CREATE INDEX held_messages_by_principal ON held_messages (principal);
