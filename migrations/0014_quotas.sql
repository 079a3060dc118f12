-- What a tenant may ask for: requests a second, and articles a day.

ALTER TABLE tenants ADD COLUMN rate_per_second int CHECK (rate_per_second >= 1);
ALTER TABLE tenants ADD COLUMN rate_burst int CHECK (rate_burst >= 1);
ALTER TABLE tenants ADD COLUMN articles_per_day int CHECK (articles_per_day >= 1);
ALTER TABLE tenants ADD CONSTRAINT a_burst_belongs_to_a_rate CHECK ((rate_per_second IS NULL) = (rate_burst IS NULL));

-- How much of a tenant's day is given out; the days are those of UTC. Made when a tenant with a quota first needs it. What was
-- given out and is not in a share was accepted.
CREATE TABLE quotas (
    tenant_id     uuid        PRIMARY KEY,
    day           date        NOT NULL,
    given         int         NOT NULL CHECK (given >= 0),
    counted_at    timestamptz NOT NULL,
    recount_until timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON COLUMN quotas.counted_at IS 'when what the day has had was counted last';
COMMENT ON COLUMN quotas.recount_until IS
    'a node that knows nothing of the quota yet accepts without it: until then every grant counts, and once after that';

-- What a writer of some node may still accept of it. The statement that accepts articles takes them from the writer's share,
-- so no two writers wait for each other, and what is left in a share is known whatever became of its writer: when the rest
-- is gone, anybody takes it.
CREATE TABLE quota_shares (
    tenant_id uuid NOT NULL,
    share_id  uuid NOT NULL,
    day       date NOT NULL,
    amount    int  NOT NULL CONSTRAINT nothing_is_taken_that_was_not_given CHECK (amount >= 0),
    PRIMARY KEY (tenant_id, share_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- How many articles a tenant handed in on a day. By the time in their ids, which a node's clock made and which may lie up to an
-- hour before, and then by their own, which is the database's.
CREATE FUNCTION quota_had(tenant uuid, of_day date) RETURNS bigint LANGUAGE sql STABLE
RETURN (SELECT count(*) FROM tasks t
    WHERE t.tenant_id = tenant AND t.created_at >= of_day::timestamp AT TIME ZONE 'UTC'
        AND t.task_id >= (lpad(to_hex(extract(epoch FROM of_day - interval '1 hour')::bigint * 1000), 12, '0')
            || rpad('7', 20, '0'))::uuid);

-- Gives a share at least `wanted`, if the day has that many, else what it has: one call, since others wait for it. A share gets
-- one of so many `parts` of what is free, and `most` at most, unless more wait for it. Where the rest of the day does not do,
-- what is left in other shares is taken back first; what is just being accepted out of one is waited for only where there is
-- nothing else. Without a quota, daily is NULL.
CREATE FUNCTION quota_grant(tenant uuid, share uuid, wanted int, most int, parts int, at timestamptz,
    OUT daily int, OUT today date, OUT own int, OUT unused bigint) LANGUAGE plpgsql AS $$
DECLARE
    begun date;
    recounts boolean;
    free bigint;
    back bigint := 0;
    had bigint;
BEGIN
    -- Waits for a change of limits alone.
    SELECT t.articles_per_day INTO daily FROM tenants t WHERE t.tenant_id = tenant FOR KEY SHARE;
    IF daily IS NULL THEN
        RETURN;
    END IF;
    -- Twice as long as any node remembers what it knew of a tenant.
    INSERT INTO quotas (tenant_id, day, given, counted_at, recount_until)
        VALUES (tenant, '0001-01-01', 0, at, at + interval '10 seconds') ON CONFLICT (tenant_id) DO NOTHING;
    SELECT q.day, account_day(q.day, 'UTC', at), q.given, q.counted_at < q.recount_until INTO begun, today, had, recounts
        FROM quotas q WHERE q.tenant_id = tenant FOR UPDATE;
    IF recounts AND begun = today THEN
        -- In one statement: what is just being taken out of a share is seen in both or in neither.
        SELECT quota_had(tenant, today) + (SELECT coalesce(sum(s.amount), 0) FROM quota_shares s WHERE s.tenant_id = tenant)
            INTO had;
    END IF;
    IF begun <> today THEN
        -- Waits for what was begun the day before.
        DELETE FROM quota_shares s WHERE s.tenant_id = tenant;
        had := quota_had(tenant, today);
    ELSIF daily - had < wanted THEN
        WITH idle AS MATERIALIZED (
            SELECT s.share_id FROM quota_shares s WHERE s.tenant_id = tenant AND s.share_id <> share AND s.amount > 0
            FOR UPDATE SKIP LOCKED
        ), gone AS (
            DELETE FROM quota_shares s USING idle i WHERE s.tenant_id = tenant AND s.share_id = i.share_id RETURNING s.amount)
        SELECT coalesce(sum(amount), 0) INTO back FROM gone;
        had := had - back;
        IF daily <= had AND NOT EXISTS (
            SELECT FROM quota_shares s WHERE s.tenant_id = tenant AND s.share_id = share AND s.amount > 0
        ) THEN
            WITH gone AS (DELETE FROM quota_shares s WHERE s.tenant_id = tenant AND s.share_id <> share AND s.amount > 0
                RETURNING s.amount)
            SELECT coalesce(sum(amount), 0) INTO back FROM gone;
            had := had - back;
        END IF;
    END IF;
    free := greatest(daily - had, 0);
    -- While others may accept without it, no more is given out than is needed at once.
    free := least(free, CASE WHEN recounts THEN wanted ELSE greatest(wanted, least(most, free / parts)) END);
    UPDATE quotas q SET day = today, given = had + free, counted_at = CASE WHEN recounts THEN at ELSE q.counted_at END
        WHERE q.tenant_id = tenant;
    INSERT INTO quota_shares AS s (tenant_id, share_id, day, amount) VALUES (tenant, share, today, free)
        ON CONFLICT (tenant_id, share_id) DO UPDATE SET amount = s.amount + excluded.amount
        RETURNING s.amount INTO own;
    SELECT daily - (had + free) + sum(s.amount) INTO unused FROM quota_shares s WHERE s.tenant_id = tenant;
END $$;

-- As in 0002_planner.sql.
INSERT INTO quotas (tenant_id, day, given, counted_at, recount_until) VALUES (gen_random_uuid(), now(), 0, now(), now());
INSERT INTO quota_shares (tenant_id, share_id, day, amount) VALUES (gen_random_uuid(), gen_random_uuid(), now(), 0);

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['quotas', 'quota_shares']
    LOOP
        EXECUTE format('ALTER TABLE %I ALTER COLUMN tenant_id SET (n_distinct = 1)', name);
        EXECUTE format('ANALYZE %I', name);
        EXECUTE format('TRUNCATE %I', name);
    END LOOP;
END $$;
