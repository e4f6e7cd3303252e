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

-- What was made before is as secret as its incarnation.
UPDATE incarnations SET workspace_level = taint_level, workspace_compartments = taint_compartments,
  workspace_integrity = taint_integrity, workspace_person = taint_person
  WHERE taint_level > 0 OR taint_compartments <> 0 OR taint_integrity > 0 OR taint_person IS NOT NULL;
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
