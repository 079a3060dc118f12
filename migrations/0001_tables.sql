-- Everything belongs to a tenant: tenant_id is the first column of every key, and every query names it.
-- There are no foreign keys to tenants or accounts: on the hot inserts they cost a third of the throughput, and neither
-- is ever deleted.

CREATE TABLE tenants (
    tenant_id         uuid        PRIMARY KEY,
    name              text        NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    marker_key_sealed bytea       NOT NULL,
    created_at        timestamptz NOT NULL
);

CREATE TABLE signing_secrets (
    tenant_id  uuid        NOT NULL,
    secret_id  uuid        NOT NULL,
    sealed     bytea       NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    PRIMARY KEY (tenant_id, secret_id)
);

CREATE TABLE api_keys (
    tenant_id   uuid        NOT NULL,
    key_id      uuid        NOT NULL,
    secret_hash bytea       NOT NULL CHECK (length(secret_hash) = 32),
    scopes      text[]      NOT NULL CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['publish', 'read', 'manage']),
    created_at  timestamptz NOT NULL,
    revoked_at  timestamptz,
    PRIMARY KEY (tenant_id, key_id),
    UNIQUE (tenant_id, secret_hash)
);

CREATE TABLE accounts (
    tenant_id    uuid        NOT NULL,
    platform     text        NOT NULL CHECK (platform ~ '^[a-z0-9_]{1,32}$'),
    account_id   text        NOT NULL CHECK (account_id ~ '^[A-Za-z0-9._@-]{1,128}$'),
    display_name text        NOT NULL,
    settings     jsonb       NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, platform, account_id)
);

-- What a claim locks, apart from `accounts`: how much an account may have in hand, and from when it is free again.
CREATE TABLE lanes (
    tenant_id     uuid        NOT NULL,
    platform      text        NOT NULL,
    account_id    text        NOT NULL,
    in_flight     int         NOT NULL DEFAULT 0,
    max_in_flight int         NOT NULL CHECK (max_in_flight >= 1),
    min_interval  interval    NOT NULL CHECK (min_interval >= '0'),
    free_at       timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, platform, account_id),
    CHECK (in_flight >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE groups (
    tenant_id  uuid        NOT NULL,
    group_code text        NOT NULL CHECK (group_code ~ '^[A-Za-z0-9_.-]{1,64}$'),
    title      text        NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, group_code)
);

CREATE TABLE group_members (
    tenant_id  uuid NOT NULL,
    group_code text NOT NULL,
    platform   text NOT NULL,
    account_id text NOT NULL,
    position   int  NOT NULL,
    PRIMARY KEY (tenant_id, group_code, platform, account_id)
);

-- The one record of an article, for ever. Narrow: the text stands in `articles`. The counters say how many of its
-- publications are drafts, open (submitted or running), and ended in which way; only a settle or a caller moves them.
CREATE TABLE tasks (
    tenant_id       uuid        NOT NULL,
    external_id     text        NOT NULL COLLATE "C" CHECK (external_id <> ''),
    task_id         uuid        NOT NULL,
    group_code      text        NOT NULL,
    fingerprint     bytea       NOT NULL CHECK (length(fingerprint) = 32),
    digests         bytea       NOT NULL CHECK (length(digests) = 64),
    idempotency_key text,
    callback_url    text,
    publish_at      timestamptz,
    draft           boolean     NOT NULL,
    drafts          int         NOT NULL CHECK (drafts >= 0),
    open            int         NOT NULL CHECK (open >= 0),
    succeeded       int         NOT NULL DEFAULT 0 CHECK (succeeded >= 0),
    failed          int         NOT NULL DEFAULT 0 CHECK (failed >= 0),
    login_expired   int         NOT NULL DEFAULT 0 CHECK (login_expired >= 0),
    created_at      timestamptz NOT NULL,
    submitted_at    timestamptz,
    finished_at     timestamptz,
    PRIMARY KEY (tenant_id, external_id),
    UNIQUE (tenant_id, task_id)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- The look-up behind the warning `same_content_as`.
CREATE INDEX tasks_by_content ON tasks (tenant_id, fingerprint);

CREATE TABLE articles (
    tenant_id     uuid  NOT NULL,
    task_id       uuid  NOT NULL,
    title         text  NOT NULL,
    content_html  text  COMPRESSION lz4 NOT NULL,
    summary       text,
    cover_url     text,
    canonical_url text,
    author        text,
    tags          jsonb NOT NULL,
    metadata      text  NOT NULL,
    PRIMARY KEY (tenant_id, task_id)
);

CREATE TABLE publications (
    tenant_id       uuid        NOT NULL,
    publication_id  uuid        NOT NULL,
    task_id         uuid        NOT NULL,
    platform        text        NOT NULL,
    account_id      text        NOT NULL,
    position        int         NOT NULL,
    status          text        NOT NULL
        CHECK (status IN ('draft', 'submitted', 'running', 'success', 'failed', 'login_expired')),
    round           int         NOT NULL DEFAULT 1 CHECK (round >= 1),
    due_at          timestamptz NOT NULL,
    fence           int         NOT NULL DEFAULT 0 CHECK (fence >= 0),
    lease_owner     text,
    lease_until     timestamptz,
    confirming      boolean     NOT NULL DEFAULT false,
    tries           int         NOT NULL DEFAULT 0,
    attempts        int         NOT NULL DEFAULT 0,
    marker          text,
    url             text,
    remote_id       text,
    error_code      text,
    error_message   text,
    error_retryable boolean,
    updated_at      timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, publication_id),
    UNIQUE (tenant_id, task_id, platform, account_id),
    CHECK ((status = 'running') = (lease_until IS NOT NULL)),
    CHECK ((lease_until IS NULL) = (lease_owner IS NULL)),
    CHECK (NOT confirming OR status = 'running'),
    CHECK (url IS NULL OR status = 'success'),
    CHECK (status <> 'failed' OR error_code IS NOT NULL),
    CHECK (status <> 'success' OR error_code IS NULL),
    CHECK ((error_code IS NULL) = (error_message IS NULL) AND (error_code IS NULL) = (error_retryable IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

COMMENT ON COLUMN publications.fence IS 'raised by every claim; a write of an earlier holder finds another fence and changes nothing';
COMMENT ON COLUMN publications.tries IS 'transient failures of this round: the place in the retry schedule';
COMMENT ON COLUMN publications.attempts IS 'how often the platform was asked to publish, over all rounds';

CREATE INDEX publications_due_by_account ON publications (tenant_id, platform, account_id, due_at) WHERE status = 'submitted';
-- For the question who has something due, which alone says `fence >= 0`: a claim that read an account's rows by this index
-- would walk past those of all other accounts.
CREATE INDEX publications_due ON publications (tenant_id, due_at) WHERE status = 'submitted' AND fence >= 0;
CREATE INDEX publications_leased ON publications (tenant_id, lease_until) WHERE status = 'running';

-- The journal: a row is committed before each step that could have an effect outside, and closed with what came back.
CREATE TABLE attempts (
    tenant_id      uuid        NOT NULL,
    publication_id uuid        NOT NULL,
    fence          int         NOT NULL,
    step           int         NOT NULL,
    kind           text        NOT NULL CHECK (kind IN ('probe', 'publish')),
    round          int         NOT NULL,
    started_at     timestamptz NOT NULL,
    ended_at       timestamptz,
    outcome        text,
    detail         text,
    PRIMARY KEY (tenant_id, publication_id, fence, step),
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 85);

CREATE TABLE transitions (
    tenant_id      uuid        NOT NULL,
    task_id        uuid        NOT NULL,
    transition_id  uuid        NOT NULL DEFAULT gen_random_uuid(),
    publication_id uuid        NOT NULL,
    at             timestamptz NOT NULL,
    from_status    text        NOT NULL,
    to_status      text        NOT NULL,
    round          int         NOT NULL,
    fence          int         NOT NULL,
    reason         text        NOT NULL,
    PRIMARY KEY (tenant_id, task_id, transition_id)
);

-- The position of a tenant's newest event.
CREATE TABLE feeds (
    tenant_id uuid   PRIMARY KEY,
    position  bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE events (
    tenant_id      uuid        NOT NULL,
    position       bigint      NOT NULL,
    event_id       uuid        NOT NULL,
    task_id        uuid        NOT NULL,
    publication_id uuid        NOT NULL,
    round          int         NOT NULL,
    status         text        NOT NULL CHECK (status IN ('success', 'failed', 'login_expired')),
    body           bytea       NOT NULL,
    created_at     timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, position),
    UNIQUE (tenant_id, event_id)
);
CREATE INDEX events_by_task ON events (tenant_id, task_id);

-- The delivery of an event to the caller's URL.
CREATE TABLE callbacks (
    tenant_id   uuid        NOT NULL,
    event_id    uuid        NOT NULL,
    url         text        NOT NULL,
    receiver    text        NOT NULL,
    status      text        NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'exhausted', 'gone')),
    tries       int         NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL,
    fence       int         NOT NULL DEFAULT 0 CHECK (fence >= 0),
    lease_owner text,
    lease_until timestamptz,
    created_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    PRIMARY KEY (tenant_id, event_id),
    CHECK ((lease_until IS NULL) = (lease_owner IS NULL)),
    CHECK (lease_until IS NULL OR status = 'pending'),
    CHECK ((status = 'pending') = (ended_at IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX callbacks_due_by_receiver ON callbacks (tenant_id, receiver, due_at) WHERE status = 'pending' AND lease_until IS NULL;
-- As `publications_due`.
CREATE INDEX callbacks_due ON callbacks (tenant_id, due_at) WHERE status = 'pending' AND lease_until IS NULL AND fence >= 0;
CREATE INDEX callbacks_leased ON callbacks (tenant_id, lease_until) WHERE lease_until IS NOT NULL;

CREATE TABLE callback_tries (
    tenant_id   uuid        NOT NULL,
    event_id    uuid        NOT NULL,
    fence       int         NOT NULL,
    at          timestamptz NOT NULL,
    duration    interval    NOT NULL,
    http_status int,
    answer_head bytea,
    error       text,
    PRIMARY KEY (tenant_id, event_id, fence)
);

-- The lanes of callbacks: one for each receiver (scheme, host, port) of a tenant.
CREATE TABLE receivers (
    tenant_id     uuid        NOT NULL,
    receiver      text        NOT NULL,
    in_flight     int         NOT NULL DEFAULT 0 CHECK (in_flight >= 0),
    max_in_flight int         NOT NULL CHECK (max_in_flight >= 1),
    free_at       timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, receiver)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
