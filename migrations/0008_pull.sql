-- Accounts whose articles are fetched by a robot, since nothing can be sent to it.
ALTER TABLE lanes ADD COLUMN pull boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN lanes.pull IS 'a robot fetches what is due here, and no worker sends it';
CREATE INDEX lanes_pulled ON lanes (tenant_id) WHERE pull;
