-- A run renews its publication several times. Where no column of any index changes, PostgreSQL writes such a row beside the
-- old one and leaves the indexes alone; `updated_at` stood in one, for what waits for a login.
ALTER TABLE publications ADD COLUMN expired_at timestamptz;
COMMENT ON COLUMN publications.expired_at IS 'since when it waits for a login';
UPDATE publications SET expired_at = updated_at WHERE status = 'login_expired';
ALTER TABLE publications ADD CONSTRAINT expired_at_while_login_expired
    CHECK ((status = 'login_expired') = (expired_at IS NOT NULL));
DROP INDEX publications_expired_by_account;
CREATE INDEX publications_expired_by_account ON publications (tenant_id, platform, account_id, expired_at)
    WHERE status = 'login_expired';

-- Each row of the journal is written once more, soon after it was made.
ALTER TABLE attempts SET (fillfactor = 70);
