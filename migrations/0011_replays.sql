-- What it takes to send a callback again because somebody asks for it, one by one and a whole range of them.

ALTER TABLE callbacks ADD COLUMN tries_before int NOT NULL DEFAULT 0;
ALTER TABLE callbacks ADD COLUMN replay_asked boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN callbacks.tries_before IS 'how many of the tries were made before the last replay: the schedule counts from there';
COMMENT ON COLUMN callbacks.replay_asked IS 'a replay was asked for while it is being sent: it is sent once more after that';
ALTER TABLE callbacks ADD CONSTRAINT counted_from_a_try_that_was_made CHECK (tries_before BETWEEN 0 AND tries);
ALTER TABLE callbacks ADD CONSTRAINT asked_for_later_only_while_sending CHECK (NOT replay_asked OR lease_until IS NOT NULL);

-- Those that an operator looks for, the newest first, among many that were delivered. `tries >= 0` is said by what lists
-- them alone: a claim that read them by this index would sort all of them for the one that is due first.
CREATE INDEX callbacks_undelivered ON callbacks (tenant_id, status, event_id) WHERE status <> 'delivered' AND tries >= 0;

-- A range of callbacks that is being sent again, in the background.
CREATE TABLE replays (
    tenant_id   uuid        NOT NULL,
    replay_id   uuid        NOT NULL,
    since       timestamptz NOT NULL,
    until       timestamptz NOT NULL,
    status      text        NOT NULL CHECK (status IN ('pending', 'delivered', 'exhausted', 'gone')),
    matched     int         NOT NULL CHECK (matched >= 0),
    replayed    int         NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL,
    created_at  timestamptz NOT NULL,
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, replay_id),
    CHECK (replayed BETWEEN 0 AND matched)
) WITH (fillfactor = 50);
COMMENT ON COLUMN replays.due_at IS 'its next part is not sent before';
CREATE INDEX replays_running ON replays (tenant_id, replay_id) WHERE finished_at IS NULL;

-- What is left of it: a row goes in the transaction that makes its callback due.
CREATE TABLE replay_events (
    tenant_id uuid NOT NULL,
    replay_id uuid NOT NULL,
    event_id  uuid NOT NULL,
    PRIMARY KEY (tenant_id, replay_id, event_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TRIGGER refuse_resurrection BEFORE UPDATE ON replays FOR EACH ROW
WHEN (OLD.finished_at IS NOT NULL) EXECUTE FUNCTION refuse('a replay that is done stays done');

-- As in 0002_planner.sql.
INSERT INTO replays (tenant_id, replay_id, since, until, status, matched, due_at, created_at)
    VALUES (gen_random_uuid(), gen_random_uuid(), now(), now(), 'gone', 1, now(), now());
INSERT INTO replay_events (tenant_id, replay_id, event_id) VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid());

-- One replay has many events: its id does not find one of them alone.
ALTER TABLE replay_events ALTER COLUMN replay_id SET (n_distinct = 1);

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['replays', 'replay_events']
    LOOP
        EXECUTE format('ALTER TABLE %I ALTER COLUMN tenant_id SET (n_distinct = 1)', name);
        EXECUTE format('ANALYZE %I', name);
        EXECUTE format('TRUNCATE %I', name);
    END LOOP;
END $$;
