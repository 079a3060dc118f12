-- What accounts need to be managed, to lose their login and to have it renewed; what a publication needs to wait for a
-- platform that answers later; what a tenant sets for all its articles.

ALTER TABLE tenants ADD COLUMN default_callback_url text;
ALTER TABLE tenants ADD COLUMN default_on_duplicate text NOT NULL DEFAULT 'return'
    CHECK (default_on_duplicate IN ('return', 'reject'));

-- The version stands beside the credentials, so that one read gives both; and in the lane, so that it can be compared
-- under the lane's lock. One statement writes the two.
ALTER TABLE accounts ADD COLUMN credentials_sealed bytea;
ALTER TABLE accounts ADD COLUMN credentials_version int NOT NULL DEFAULT 1;
ALTER TABLE accounts ADD COLUMN daily_limit int CHECK (daily_limit >= 1);
ALTER TABLE accounts ADD COLUMN time_zone text NOT NULL DEFAULT 'UTC';
ALTER TABLE accounts ADD COLUMN hidden_at timestamptz;

ALTER TABLE lanes ADD COLUMN login_state text NOT NULL DEFAULT 'active'
    CHECK (login_state IN ('active', 'login_expired'));
ALTER TABLE lanes ADD COLUMN credentials_version int NOT NULL DEFAULT 1;
ALTER TABLE lanes ADD COLUMN declined_version int NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN resume_from timestamptz;
COMMENT ON COLUMN lanes.declined_version IS 'what expired under this version or an earlier one is not resumed: a renewal said so';
COMMENT ON COLUMN lanes.resume_from IS 'while set: what waits for the login since then is being resumed';
CREATE INDEX lanes_parked ON lanes (tenant_id) WHERE login_state = 'login_expired';
CREATE INDEX lanes_resuming ON lanes (tenant_id) WHERE resume_from IS NOT NULL;

ALTER TABLE publications ADD COLUMN credentials_version int;
COMMENT ON COLUMN publications.credentials_version IS 'the version it was last claimed with, or found expired';

-- A publication that waits for its platform's answer runs without a lease and without a slot of its lane; it is asked
-- about again when it is due.
ALTER TABLE publications DROP CONSTRAINT publications_check;
ALTER TABLE publications ADD CONSTRAINT a_lease_only_while_running CHECK (lease_until IS NULL OR status = 'running');
ALTER TABLE publications ADD CONSTRAINT without_a_lease_it_awaits_an_answer
    CHECK (status <> 'running' OR lease_until IS NOT NULL OR confirming);
CREATE INDEX publications_awaited_by_account ON publications (tenant_id, platform, account_id, due_at)
    WHERE status = 'running' AND lease_until IS NULL;
-- As `publications_due`.
CREATE INDEX publications_awaited ON publications (tenant_id, due_at)
    WHERE status = 'running' AND lease_until IS NULL AND fence >= 0;
CREATE INDEX publications_expired_by_account ON publications (tenant_id, platform, account_id, updated_at)
    WHERE status = 'login_expired';
CREATE INDEX publications_drafts_by_account ON publications (tenant_id, platform, account_id) WHERE status = 'draft';

ALTER TABLE attempts ADD COLUMN accepted boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN attempts.accepted IS 'the platform said that it is working on it; the outcome comes later';

-- The accounts of a draft are taken again when it is submitted: until then its publications may go.
DROP TRIGGER refuse_loss ON publications;
CREATE TRIGGER refuse_loss BEFORE DELETE ON publications FOR EACH ROW
WHEN (OLD.status <> 'draft') EXECUTE FUNCTION refuse('a publication is kept for ever');
