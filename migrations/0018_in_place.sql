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

-- The same rule in fewer words: PostgreSQL reads the condition anew for each statement that it guards.
DROP TRIGGER refuse_transition ON publications;
CREATE TRIGGER refuse_transition BEFORE UPDATE OF status ON publications FOR EACH ROW
WHEN (OLD.status <> NEW.status
    AND OLD.status || '>' || NEW.status <> ALL ('{draft>submitted, submitted>running, submitted>login_expired,
        running>success, running>failed, running>login_expired, running>submitted,
        failed>submitted, login_expired>submitted}'::text[])
    AND NOT (OLD.status = ANY ('{draft, submitted, login_expired}'::text[]) AND NEW.status = 'failed'
        AND NEW.error_code = 'cancelled')
) EXECUTE FUNCTION refuse('there is no such transition');
