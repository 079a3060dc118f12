-- What the planner should know before it has seen anything.
--
-- Every statement names the tenant and goes on by a second column. Of a column that it has no statistics of, the planner
-- takes a value to be one of 200, so on a young table the tenant alone looks as good as the whole key; it then walks all
-- rows of the tenant, and keeps that plan while the table grows. So it is told that the tenant alone decides nothing, for
-- good, and until it has seen for itself, that of other columns no two rows are alike. It learns that by ANALYZE only, and
-- only from a table that holds a row: one is written, looked at, and taken out again.

INSERT INTO signing_secrets (tenant_id, secret_id, sealed, created_at)
    VALUES (gen_random_uuid(), gen_random_uuid(), '', now());
INSERT INTO api_keys (tenant_id, key_id, secret_hash, scopes, created_at)
    VALUES (gen_random_uuid(), gen_random_uuid(), sha256(''), '{read}', now());
INSERT INTO accounts (tenant_id, platform, account_id, display_name, settings, created_at, updated_at)
    VALUES (gen_random_uuid(), 'x', 'x', '', '{}', now(), now());
INSERT INTO lanes (tenant_id, platform, account_id, max_in_flight, min_interval, free_at)
    VALUES (gen_random_uuid(), 'x', 'x', 1, '0', now());
INSERT INTO groups (tenant_id, group_code, title, created_at, updated_at)
    VALUES (gen_random_uuid(), 'x', '', now(), now());
INSERT INTO group_members (tenant_id, group_code, platform, account_id, position)
    VALUES (gen_random_uuid(), 'x', 'x', 'x', 1);
INSERT INTO tasks (tenant_id, external_id, task_id, group_code, fingerprint, digests, draft, drafts, open, created_at)
    VALUES (gen_random_uuid(), 'x', gen_random_uuid(), 'x', sha256(''), sha256('') || sha256(''), false, 0, 0, now());
INSERT INTO articles (tenant_id, task_id, title, content_html, tags, metadata)
    VALUES (gen_random_uuid(), gen_random_uuid(), '', '', '[]', '{}');
INSERT INTO publications (tenant_id, publication_id, task_id, platform, account_id, position, status, due_at, updated_at)
    VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'x', 'x', 1, 'submitted', now(), now());
INSERT INTO attempts (tenant_id, publication_id, fence, step, kind, round, started_at)
    VALUES (gen_random_uuid(), gen_random_uuid(), 1, 1, 'probe', 1, now());
INSERT INTO transitions (tenant_id, task_id, publication_id, at, from_status, to_status, round, fence, reason)
    VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), now(), '', '', 1, 1, '');
INSERT INTO events (tenant_id, position, event_id, task_id, publication_id, round, status, body, created_at)
    VALUES (gen_random_uuid(), 1, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, 'success', '', now());
INSERT INTO callbacks (tenant_id, event_id, url, receiver, due_at, created_at)
    VALUES (gen_random_uuid(), gen_random_uuid(), '', '', now(), now());
INSERT INTO callback_tries (tenant_id, event_id, fence, at, duration)
    VALUES (gen_random_uuid(), gen_random_uuid(), 1, now(), '0');
INSERT INTO receivers (tenant_id, receiver, max_in_flight, free_at)
    VALUES (gen_random_uuid(), '', 1, now());

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['signing_secrets', 'api_keys', 'accounts', 'lanes', 'groups', 'group_members', 'tasks',
        'articles', 'publications', 'attempts', 'transitions', 'events', 'callbacks', 'callback_tries', 'receivers']
    LOOP
        EXECUTE format('ALTER TABLE %I ALTER COLUMN tenant_id SET (n_distinct = 1)', name);
        EXECUTE format('ANALYZE %I', name);
        -- Empties it, and has the planner take it for one it has never seen: not for a tiny one, which it would scan.
        EXECUTE format('TRUNCATE %I', name);
    END LOOP;
END $$;
