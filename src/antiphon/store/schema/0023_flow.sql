-- What a person may read and be sent, and what a token may read; NULL for the default of the role, and of the person.
ALTER TABLE people ADD COLUMN clearance_level SMALLINT;
ALTER TABLE people ADD COLUMN clearance_compartments BIGINT;
ALTER TABLE people ADD COLUMN clearance_person TEXT;
ALTER TABLE tokens ADD COLUMN clearance_level SMALLINT;
ALTER TABLE tokens ADD COLUMN clearance_compartments BIGINT;
ALTER TABLE tokens ADD COLUMN clearance_person TEXT;

-- What the reply, error, code and usage of a run were made of.
ALTER TABLE runs ADD COLUMN level SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN compartments BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN integrity SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN person TEXT;

ALTER TABLE deliveries ADD COLUMN level SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN compartments BIGINT NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN integrity SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN person TEXT;

ALTER TABLE sessions ADD COLUMN preview_level SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN preview_compartments BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN preview_person TEXT;
ALTER TABLE sessions ADD COLUMN description_level SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN description_compartments BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN description_person TEXT;

-- The join of the contexts of the runs that used its workspace. Contract: flow 8.
ALTER TABLE incarnations ADD COLUMN workspace_level SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE incarnations ADD COLUMN workspace_compartments BIGINT NOT NULL DEFAULT 0;
ALTER TABLE incarnations ADD COLUMN workspace_integrity SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE incarnations ADD COLUMN workspace_person TEXT;
-- A part of the name of its directory: 0 for the directory that the session began with, which older homes kept over resets.
ALTER TABLE incarnations ADD COLUMN workspace_seq BIGINT NOT NULL DEFAULT 0;

-- The incarnations of a session shared one directory until now.
UPDATE incarnations SET
  workspace_level = (SELECT MAX(o.taint_level) FROM incarnations o WHERE o.session = incarnations.session),
  workspace_compartments = (SELECT CASE WHEN MIN(o.taint_compartments) = MAX(o.taint_compartments)
    THEN MAX(o.taint_compartments) ELSE COALESCE((SELECT CAST(SUM(CAST(1 AS BIGINT) << c.bit) AS BIGINT) FROM compartments c),
    MAX(o.taint_compartments)) END
    FROM incarnations o WHERE o.session = incarnations.session),
  workspace_integrity = (SELECT MAX(o.taint_integrity) FROM incarnations o WHERE o.session = incarnations.session),
  workspace_person = (SELECT CASE WHEN COUNT(DISTINCT o.taint_person) > 1 THEN 'people' ELSE MAX(o.taint_person) END
    FROM incarnations o WHERE o.session = incarnations.session)
  WHERE session IN (SELECT o.session FROM incarnations o
    WHERE o.taint_level > 0 OR o.taint_compartments <> 0 OR o.taint_integrity > 0 OR o.taint_person IS NOT NULL);

-- What was made before is as secret as its incarnation.
UPDATE runs SET
  level = (SELECT i.taint_level FROM incarnations i WHERE i.id = runs.incarnation),
  compartments = (SELECT i.taint_compartments FROM incarnations i WHERE i.id = runs.incarnation),
  integrity = (SELECT i.taint_integrity FROM incarnations i WHERE i.id = runs.incarnation),
  person = (SELECT i.taint_person FROM incarnations i WHERE i.id = runs.incarnation)
  WHERE incarnation IN (SELECT i.id FROM incarnations i
    WHERE i.taint_level > 0 OR i.taint_compartments <> 0 OR i.taint_integrity > 0 OR i.taint_person IS NOT NULL);
UPDATE deliveries SET
  level = (SELECT i.taint_level FROM incarnations i WHERE i.id = deliveries.incarnation),
  compartments = (SELECT i.taint_compartments FROM incarnations i WHERE i.id = deliveries.incarnation),
  integrity = (SELECT i.taint_integrity FROM incarnations i WHERE i.id = deliveries.incarnation),
  person = (SELECT i.taint_person FROM incarnations i WHERE i.id = deliveries.incarnation)
  WHERE incarnation IN (SELECT i.id FROM incarnations i
    WHERE i.taint_level > 0 OR i.taint_compartments <> 0 OR i.taint_integrity > 0 OR i.taint_person IS NOT NULL);
UPDATE sessions SET
  preview_level = (SELECT i.taint_level FROM incarnations i WHERE i.id = sessions.incarnation),
  preview_compartments = (SELECT i.taint_compartments FROM incarnations i WHERE i.id = sessions.incarnation),
  preview_person = (SELECT i.taint_person FROM incarnations i WHERE i.id = sessions.incarnation),
  description_level = (SELECT i.taint_level FROM incarnations i WHERE i.id = sessions.incarnation),
  description_compartments = (SELECT i.taint_compartments FROM incarnations i WHERE i.id = sessions.incarnation),
  description_person = (SELECT i.taint_person FROM incarnations i WHERE i.id = sessions.incarnation)
  WHERE incarnation IN (SELECT i.id FROM incarnations i
    WHERE i.taint_level > 0 OR i.taint_compartments <> 0 OR i.taint_person IS NOT NULL);
