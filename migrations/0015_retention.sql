-- Removing by age: contents and journals of what has ended, and events with their callbacks; never a key or an outcome. What may
-- go, and what stays for ever, is told in `store/retention.rs`.

ALTER TABLE tasks ADD COLUMN content_removed_at timestamptz;
COMMENT ON COLUMN tasks.content_removed_at IS 'when its article, attempts and transitions were removed by age; null: they are there';
-- What has no content can never run again, whatever asks for it.
ALTER TABLE tasks ADD CONSTRAINT without_content_nothing_is_unfinished
    CHECK (content_removed_at IS NULL OR open = 0 AND drafts = 0);

-- How far each tenant's removal is. Whoever removes something of a tenant holds this row until the commit, so of several nodes
-- one does, and the others pass by; whoever dies in it has done nothing.
CREATE TABLE retentions (
    tenant_id             uuid        PRIMARY KEY,
    contents_after        uuid        NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    contents_kept         uuid,
    lap_at                timestamptz NOT NULL DEFAULT '-infinity',
    contents_removed      bigint      NOT NULL DEFAULT 0,
    contents_removed_at   timestamptz,
    events_removed_to     bigint      NOT NULL DEFAULT 0,
    events_removed_before timestamptz,
    events_removed_at     timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON COLUMN retentions.contents_after IS 'tasks up to this id were looked at';
COMMENT ON COLUMN retentions.contents_kept IS 'the first of them that had not ended long enough ago: the next lap begins with it';
COMMENT ON COLUMN retentions.lap_at IS 'the next lap does not begin before';
COMMENT ON COLUMN retentions.contents_removed IS 'how many tasks'' contents were removed';
COMMENT ON COLUMN retentions.events_removed_to IS 'the feed begins behind this position: events go from its beginning, so that it has no gap';
COMMENT ON COLUMN retentions.events_removed_before IS 'when the newest of them was written';
INSERT INTO retentions (tenant_id) SELECT tenant_id FROM tenants;

-- A callback that is sent again has its time again.
ALTER TABLE callbacks ADD COLUMN replayed_at timestamptz;
COMMENT ON COLUMN callbacks.replayed_at IS 'when it was last asked to be sent again: what is pending for too long since then is given up';

-- What was removed takes room until it is vacuumed; by the default, a fifth of a table.
ALTER TABLE articles SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE attempts SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE transitions SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE events SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE callback_tries SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- What no hand and no fault may remove. The mark is set first, in the same transaction; these look for it in another table, which
-- triggers on Citus cannot.
CREATE TRIGGER refuse_early_removal BEFORE UPDATE OF content_removed_at ON tasks FOR EACH ROW
WHEN (NEW.content_removed_at IS DISTINCT FROM OLD.content_removed_at AND (OLD.content_removed_at IS NOT NULL
    OR NEW.finished_at IS NULL OR NEW.content_removed_at < NEW.finished_at + interval '8 days'))
EXECUTE FUNCTION refuse('content goes once, and only 8 days after all of it has ended');

CREATE FUNCTION refuse_loss_of_content() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM tasks t WHERE t.tenant_id = OLD.tenant_id AND t.task_id = OLD.task_id
        AND t.content_removed_at IS NOT NULL)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'restrict_violation',
            MESSAGE = format('%s on %s refused: an accepted article is not lost: what is of a task goes when the task is marked so',
                TG_OP, TG_TABLE_NAME);
    END IF;
    RETURN OLD;
END $$;
DROP TRIGGER refuse_loss ON articles;
CREATE TRIGGER refuse_loss BEFORE DELETE ON articles FOR EACH ROW EXECUTE FUNCTION refuse_loss_of_content();
CREATE TRIGGER refuse_loss BEFORE DELETE ON transitions FOR EACH ROW EXECUTE FUNCTION refuse_loss_of_content();

CREATE FUNCTION refuse_loss_of_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.ended_at IS NULL OR NOT EXISTS (SELECT FROM publications p JOIN tasks t USING (tenant_id, task_id)
        WHERE p.tenant_id = OLD.tenant_id AND p.publication_id = OLD.publication_id AND t.content_removed_at IS NOT NULL)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'restrict_violation',
            MESSAGE = format('%s on %s refused: what was sent is not forgotten before its task is marked so, and never while it is open',
                TG_OP, TG_TABLE_NAME);
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER refuse_loss BEFORE DELETE ON attempts FOR EACH ROW EXECUTE FUNCTION refuse_loss_of_attempt();

CREATE FUNCTION refuse_loss_of_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM events e JOIN retentions r USING (tenant_id)
        WHERE e.tenant_id = OLD.tenant_id AND e.event_id = OLD.event_id AND e.position > r.events_removed_to)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'restrict_violation',
            MESSAGE = format('%s on %s refused: events go from the beginning of their feed', TG_OP, TG_TABLE_NAME);
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER refuse_loss BEFORE DELETE ON events FOR EACH ROW EXECUTE FUNCTION refuse_loss_of_event();
CREATE TRIGGER refuse_loss BEFORE DELETE ON callbacks FOR EACH ROW EXECUTE FUNCTION refuse_loss_of_event();
CREATE TRIGGER refuse_loss BEFORE DELETE ON callback_tries FOR EACH ROW EXECUTE FUNCTION refuse_loss_of_event();
CREATE TRIGGER refuse_loss_while_pending BEFORE DELETE ON callbacks FOR EACH ROW
WHEN (OLD.status = 'pending') EXECUTE FUNCTION refuse('what is to be delivered is not lost');
CREATE TRIGGER refuse_loss BEFORE DELETE ON replays FOR EACH ROW
WHEN (OLD.finished_at IS NULL) EXECUTE FUNCTION refuse('a replay that is not done is not lost');

CREATE TRIGGER refuse_return BEFORE UPDATE OF events_removed_to ON retentions FOR EACH ROW
WHEN (NEW.events_removed_to < OLD.events_removed_to) EXECUTE FUNCTION refuse('what was removed does not come back');
CREATE TRIGGER refuse_loss BEFORE DELETE ON retentions FOR EACH ROW EXECUTE FUNCTION refuse('how far a removal is, is not lost');
