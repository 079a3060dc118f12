-- An account that was added to one task by hand stays with it when the accounts of a draft's group are taken again.
ALTER TABLE publications ADD COLUMN added boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN publications.added IS 'added by the caller, not by the group';
