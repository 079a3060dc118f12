-- What no hand and no fault may do, whoever sends the statement.
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'restrict_violation',
        MESSAGE = format('%s on %s refused: %s', TG_OP, TG_TABLE_NAME, TG_ARGV[0]);
END $$;

CREATE TRIGGER refuse_transition BEFORE UPDATE OF status ON publications FOR EACH ROW
WHEN (NOT (
    OLD.status = NEW.status
    OR (OLD.status, NEW.status) IN (
        ('draft', 'submitted'),
        ('submitted', 'running'), ('submitted', 'login_expired'),
        ('running', 'success'), ('running', 'failed'), ('running', 'login_expired'), ('running', 'submitted'),
        ('failed', 'submitted'), ('login_expired', 'submitted'))
    OR (OLD.status IN ('draft', 'submitted', 'login_expired') AND NEW.status = 'failed' AND NEW.error_code = 'cancelled')
)) EXECUTE FUNCTION refuse('there is no such transition');

CREATE TRIGGER refuse_rewrite BEFORE UPDATE OF status, url, remote_id, round ON publications FOR EACH ROW
WHEN (OLD.status = 'success') EXECUTE FUNCTION refuse('success is final');

CREATE TRIGGER refuse_birth BEFORE INSERT ON publications FOR EACH ROW
WHEN (NEW.status NOT IN ('draft', 'submitted')) EXECUTE FUNCTION refuse('a publication begins as draft or submitted');

CREATE TRIGGER refuse_stale_fence BEFORE UPDATE OF fence, round ON publications FOR EACH ROW
WHEN (NEW.fence < OLD.fence OR NEW.round < OLD.round) EXECUTE FUNCTION refuse('fence and round only rise');

CREATE TRIGGER refuse_new_identity BEFORE UPDATE OF tenant_id, external_id, task_id ON tasks FOR EACH ROW
WHEN ((OLD.tenant_id, OLD.external_id, OLD.task_id) IS DISTINCT FROM (NEW.tenant_id, NEW.external_id, NEW.task_id))
EXECUTE FUNCTION refuse('a task keeps its tenant, external_id and task_id for ever');

CREATE TRIGGER refuse_new_identity BEFORE UPDATE OF tenant_id, publication_id, task_id, platform, account_id, marker
ON publications FOR EACH ROW
WHEN ((OLD.tenant_id, OLD.publication_id, OLD.task_id, OLD.platform, OLD.account_id, coalesce(OLD.marker, NEW.marker))
    IS DISTINCT FROM (NEW.tenant_id, NEW.publication_id, NEW.task_id, NEW.platform, NEW.account_id, NEW.marker))
EXECUTE FUNCTION refuse('a publication keeps its task, its account and its marker for ever');

CREATE TRIGGER refuse_change BEFORE UPDATE ON events FOR EACH ROW
EXECUTE FUNCTION refuse('an event is fixed when it is written');

CREATE TRIGGER refuse_reuse BEFORE UPDATE OF position ON feeds FOR EACH ROW
WHEN (NEW.position < OLD.position) EXECUTE FUNCTION refuse('positions of a feed are used once');
CREATE TRIGGER refuse_loss BEFORE DELETE ON feeds FOR EACH ROW EXECUTE FUNCTION refuse('positions of a feed are used once');
CREATE TRIGGER refuse_loss BEFORE DELETE ON tenants FOR EACH ROW EXECUTE FUNCTION refuse('a tenant is kept for ever');

CREATE TRIGGER refuse_loss BEFORE DELETE ON tasks FOR EACH ROW EXECUTE FUNCTION refuse('a task is kept for ever');
CREATE TRIGGER refuse_loss BEFORE DELETE ON publications FOR EACH ROW EXECUTE FUNCTION refuse('a publication is kept for ever');
CREATE TRIGGER refuse_loss BEFORE DELETE ON articles FOR EACH ROW EXECUTE FUNCTION refuse('an accepted article is not lost');
CREATE TRIGGER refuse_emptying BEFORE TRUNCATE ON articles EXECUTE FUNCTION refuse('an accepted article is not lost');
CREATE TRIGGER refuse_emptying BEFORE TRUNCATE ON tasks EXECUTE FUNCTION refuse('a task is kept for ever');
CREATE TRIGGER refuse_emptying BEFORE TRUNCATE ON publications EXECUTE FUNCTION refuse('a publication is kept for ever');
