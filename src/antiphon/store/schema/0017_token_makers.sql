-- Tokens act as persons and within scopes, as a channel in its namespace, or as a session within the rights of the
-- person who made them. Only owners could make tokens before.
ALTER TABLE tokens ADD COLUMN scopes TEXT;
ALTER TABLE tokens ADD COLUMN namespace TEXT;
UPDATE tokens SET principal = 'person:' || COALESCE((SELECT p.merged_into FROM people p WHERE p.id = 'owner'), 'owner') WHERE kind = 'session';
-- What holders of such tokens began goes on with the rights of that person.
UPDATE runs SET principal = 'person:' || COALESCE((SELECT p.merged_into FROM people p WHERE p.id = 'owner'), 'owner') WHERE SUBSTR(principal, 1, 6) = 'agent:' AND (ended_at IS NULL OR is_parked = 1);
UPDATE exchanges SET principal = 'person:' || COALESCE((SELECT p.merged_into FROM people p WHERE p.id = 'owner'), 'owner') WHERE SUBSTR(principal, 1, 6) = 'agent:';
UPDATE reports SET principal = 'person:' || COALESCE((SELECT p.merged_into FROM people p WHERE p.id = 'owner'), 'owner') WHERE SUBSTR(principal, 1, 6) = 'agent:';
UPDATE approvals SET principal = 'person:' || COALESCE((SELECT p.merged_into FROM people p WHERE p.id = 'owner'), 'owner') WHERE SUBSTR(principal, 1, 6) = 'agent:' AND state = 'pending';
