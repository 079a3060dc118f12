-- As in 0002_planner.sql, once more: emptied in the transaction that made them, the sandbox's tables were taken for tiny ones,
-- and a plan for a tiny table reads all of it. And the account decides as little as the tenant: without that, an article was
-- looked for among all of its account.

ALTER TABLE sandbox_marks ALTER COLUMN account_id SET (n_distinct = 1);
ALTER TABLE sandbox_articles ALTER COLUMN account_id SET (n_distinct = 1);
ALTER TABLE sandbox_requests ALTER COLUMN account_id SET (n_distinct = 1);

DO $$
DECLARE
    name text;
    in_use boolean;
BEGIN
    FOREACH name IN ARRAY ARRAY['sandbox_accounts', 'sandbox_marks', 'sandbox_articles', 'sandbox_requests']
    LOOP
        -- What is in use is analyzed by and by.
        EXECUTE format('SELECT EXISTS (SELECT FROM %I)', name) INTO in_use;
        CONTINUE WHEN in_use;
        CASE name
            WHEN 'sandbox_accounts' THEN
                INSERT INTO sandbox_accounts (tenant_id, account_id, login_version) VALUES (gen_random_uuid(), 'x', 1);
            WHEN 'sandbox_marks' THEN
                INSERT INTO sandbox_marks (tenant_id, account_id, marker, ordinal) VALUES (gen_random_uuid(), 'x', 'x', 1);
            WHEN 'sandbox_articles' THEN
                INSERT INTO sandbox_articles (tenant_id, account_id, article_id, marker, external_id, title, content, made_at)
                    VALUES (gen_random_uuid(), 'x', 1, 'x', 'x', '', '{}', now());
            ELSE
                INSERT INTO sandbox_requests (tenant_id, account_id, number, kind, at)
                    VALUES (gen_random_uuid(), 'x', 1, 'list', now());
        END CASE;
        EXECUTE format('ANALYZE %I', name);
        EXECUTE format('TRUNCATE %I', name);
    END LOOP;
END $$;
