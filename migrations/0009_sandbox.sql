-- What the built-in platform `sandbox` holds, apart from the state of the service: it is written as any platform writes,
-- in transactions of its own. A mark may stand on several articles: a platform has no key that would forbid it.

CREATE TABLE sandbox_accounts (
    tenant_id      uuid    NOT NULL,
    account_id     text    NOT NULL,
    last_request   bigint  NOT NULL DEFAULT 0,
    last_article   bigint  NOT NULL DEFAULT 0,
    held           int     NOT NULL DEFAULT 0 CHECK (held >= 0),
    seen           int     NOT NULL DEFAULT 0,
    login_version  int     NOT NULL,
    published      int     NOT NULL DEFAULT 0,
    logged_out     boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, account_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON COLUMN sandbox_accounts.held IS 'how many articles it holds';
COMMENT ON COLUMN sandbox_accounts.seen IS 'how many articles it was ever asked about';
COMMENT ON COLUMN sandbox_accounts.login_version IS 'the version of the credentials that the present login was made with';
COMMENT ON COLUMN sandbox_accounts.published IS 'how many articles became public under that login';
COMMENT ON COLUMN sandbox_accounts.logged_out IS 'that login has expired: nothing is let in until other credentials, or the same, are put';

-- How often it was asked about an article: what a rule such as "the second request" counts.
CREATE TABLE sandbox_marks (
    tenant_id  uuid NOT NULL,
    account_id text NOT NULL,
    marker     text NOT NULL,
    ordinal    int  NOT NULL,
    finds      int  NOT NULL DEFAULT 0,
    drafts     int  NOT NULL DEFAULT 0,
    publishes  int  NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, account_id, marker)
) WITH (fillfactor = 70);
COMMENT ON COLUMN sandbox_marks.ordinal IS 'the place among the account''s articles, in the order in which it was first asked about them';

CREATE TABLE sandbox_articles (
    tenant_id   uuid        NOT NULL,
    account_id  text        NOT NULL,
    article_id  bigint      NOT NULL,
    marker      text        NOT NULL,
    external_id text        NOT NULL COLLATE "C",
    title       text        NOT NULL,
    content     jsonb       COMPRESSION lz4 NOT NULL,
    made_at     timestamptz NOT NULL,
    public_at   timestamptz,
    PRIMARY KEY (tenant_id, account_id, article_id)
) WITH (fillfactor = 85);
COMMENT ON COLUMN sandbox_articles.made_at IS 'it is not there before: ahead of the request where the platform is late';
COMMENT ON COLUMN sandbox_articles.public_at IS 'it is a draft before: ahead of the request where the platform is late';
CREATE INDEX sandbox_articles_by_marker ON sandbox_articles (tenant_id, account_id, marker, article_id);
CREATE INDEX sandbox_articles_by_external_id ON sandbox_articles (tenant_id, account_id, external_id, article_id);

-- Every request that reached it, the newest of each account.
CREATE TABLE sandbox_requests (
    tenant_id   uuid        NOT NULL,
    account_id  text        NOT NULL,
    number      bigint      NOT NULL,
    kind        text        NOT NULL CHECK (kind IN ('find', 'draft', 'publish', 'remove', 'login', 'list')),
    marker      text,
    external_id text        COLLATE "C",
    request_id  text,
    nth         int,
    behaviour   text,
    article_id  bigint,
    effect      text        CHECK (effect IN ('made', 'published', 'removed')),
    http_status int,
    at          timestamptz NOT NULL,
    answered_at timestamptz,
    PRIMARY KEY (tenant_id, account_id, number)
) WITH (fillfactor = 70);
COMMENT ON COLUMN sandbox_requests.nth IS 'the how manieth of its kind about this article it was';
COMMENT ON COLUMN sandbox_requests.behaviour IS 'what the platform did instead of what it should';
COMMENT ON COLUMN sandbox_requests.http_status IS 'what was answered; null where no answer was given';
CREATE INDEX sandbox_requests_by_external_id ON sandbox_requests (tenant_id, account_id, external_id, number);

-- As in 0002_planner.sql.
INSERT INTO sandbox_accounts (tenant_id, account_id, login_version) VALUES (gen_random_uuid(), 'x', 1);
INSERT INTO sandbox_marks (tenant_id, account_id, marker, ordinal) VALUES (gen_random_uuid(), 'x', 'x', 1);
INSERT INTO sandbox_articles (tenant_id, account_id, article_id, marker, external_id, title, content, made_at)
    VALUES (gen_random_uuid(), 'x', 1, 'x', 'x', '', '{}', now());
INSERT INTO sandbox_requests (tenant_id, account_id, number, kind, at) VALUES (gen_random_uuid(), 'x', 1, 'list', now());

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['sandbox_accounts', 'sandbox_marks', 'sandbox_articles', 'sandbox_requests']
    LOOP
        EXECUTE format('ALTER TABLE %I ALTER COLUMN tenant_id SET (n_distinct = 1)', name);
        EXECUTE format('ANALYZE %I', name);
        EXECUTE format('TRUNCATE %I', name);
    END LOOP;
END $$;
