-- One index for the lists of all agents and of one: every message moves its session in each of them.
DROP INDEX sessions_listed;
DROP INDEX sessions_listed_by_agent;
CREATE INDEX sessions_listed ON sessions (updated_at, id, agent_id)
  WHERE deleted_at IS NULL AND status <> 'inactive';
