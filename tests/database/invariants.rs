//! What must hold after every test, whatever it did.

use sqlx::PgPool;

/// A rule, and the statement that names what breaks it.
const RULES: [(&str, &str); 25] = [
    (
        "a task's counters are those of its publications, of which there is at least one",
        "SELECT coalesce(t.external_id, '?') FROM tasks t FULL JOIN (
            SELECT tenant_id, task_id, count(*) FILTER (WHERE status = 'draft') AS drafts,
                count(*) FILTER (WHERE status IN ('submitted', 'running')) AS open,
                count(*) FILTER (WHERE status = 'success') AS succeeded,
                count(*) FILTER (WHERE status = 'failed') AS failed,
                count(*) FILTER (WHERE status = 'login_expired') AS login_expired
            FROM publications GROUP BY 1, 2) p USING (tenant_id, task_id)
        WHERE (t.drafts, t.open, t.succeeded, t.failed, t.login_expired)
            IS DISTINCT FROM (p.drafts, p.open, p.succeeded, p.failed, p.login_expired)",
    ),
    (
        "a task has its article until that is removed, and an article its task",
        "SELECT coalesce(t.external_id, a.title) FROM tasks t FULL JOIN articles a USING (tenant_id, task_id)
        WHERE t.external_id IS NULL OR (a.title IS NULL) <> (t.content_removed_at IS NOT NULL)",
    ),
    (
        "what has no content any more has ended, is decided, and has no journal",
        "SELECT t.external_id FROM tasks t JOIN publications p USING (tenant_id, task_id)
        WHERE t.content_removed_at IS NOT NULL AND (t.finished_at IS NULL OR p.sweep_at IS NOT NULL
            OR p.error_code = 'outcome_unknown' OR p.status NOT IN ('success', 'failed', 'login_expired')
            OR EXISTS (SELECT FROM attempts a WHERE a.tenant_id = t.tenant_id AND a.publication_id = p.publication_id)
            -- What waited for a login may have been cancelled since.
            OR EXISTS (SELECT FROM transitions x WHERE x.tenant_id = t.tenant_id AND x.task_id = t.task_id
                AND (x.from_status, x.to_status) <> ('login_expired', 'failed')))",
    ),
    (
        "callbacks and their tries go with their event",
        "SELECT event_id::text FROM (SELECT tenant_id, event_id FROM callbacks UNION SELECT tenant_id, event_id FROM callback_tries) c
        WHERE NOT EXISTS (SELECT FROM events e WHERE e.tenant_id = c.tenant_id AND e.event_id = c.event_id)",
    ),
    (
        "a task has ended when nothing of it is open",
        "SELECT external_id FROM tasks WHERE (finished_at IS NULL) <> (drafts + open > 0)",
    ),
    (
        "a lane's in_flight is what runs of its account",
        "SELECT concat(account_id, ': ', l.in_flight, ' for ', p.n) FROM lanes l FULL JOIN (
            SELECT tenant_id, platform, account_id, count(*) AS n FROM publications WHERE lease_until IS NOT NULL
            GROUP BY 1, 2, 3) p USING (tenant_id, platform, account_id)
        WHERE l.in_flight IS DISTINCT FROM coalesce(p.n, 0)",
    ),
    (
        "a lane's credentials version is its account's",
        "SELECT concat(account_id, ': ', a.credentials_version, ' and ', l.credentials_version)
        FROM accounts a FULL JOIN lanes l USING (tenant_id, platform, account_id)
        WHERE a.credentials_version IS DISTINCT FROM l.credentials_version",
    ),
    (
        "a group holds no account that is hidden or not there",
        "SELECT concat(m.group_code, ': ', account_id)
        FROM group_members m LEFT JOIN accounts a USING (tenant_id, platform, account_id)
        WHERE a.hidden_at IS NOT NULL OR a.account_id IS NULL",
    ),
    (
        "nothing of a hidden account is unfinished",
        "SELECT concat(p.status, ' of ', account_id)
        FROM accounts a JOIN publications p USING (tenant_id, platform, account_id)
        WHERE a.hidden_at IS NOT NULL AND p.status IN ('draft', 'submitted', 'running', 'login_expired')",
    ),
    (
        "no lane is over its limit",
        "SELECT account_id FROM lanes WHERE in_flight > max_in_flight",
    ),
    (
        "a lane's day_count is what has a slot of its day",
        "SELECT concat(account_id, ': ', l.day_count, ' for ', coalesce(p.n, 0)) FROM lanes l LEFT JOIN (
            SELECT tenant_id, platform, account_id, counted_on AS day, count(*) AS n FROM publications
            WHERE counted_on IS NOT NULL GROUP BY 1, 2, 3, 4) p USING (tenant_id, platform, account_id, day)
        WHERE l.day_count <> coalesce(p.n, 0)",
    ),
    (
        "a slot of a day is had only by what runs, is public, or may be",
        "SELECT concat(publication_id, ': ', status) FROM publications
        WHERE counted_on IS NOT NULL AND status NOT IN ('running', 'success')
            AND (status, error_code) IS DISTINCT FROM ('failed', 'outcome_unknown')",
    ),
    (
        "what was given of a quota's day was accepted, or is left in a share of that day",
        "SELECT concat(q.tenant_id, ': ', q.given, ' given, ', s.n, ' left') FROM quotas q LEFT JOIN LATERAL (
            SELECT coalesce(sum(amount), 0) AS n, count(*) FILTER (WHERE day <> q.day) AS others
            FROM quota_shares s WHERE s.tenant_id = q.tenant_id) s ON true
        WHERE others > 0 OR q.given - s.n > (
            SELECT count(*) FROM tasks t
            WHERE t.tenant_id = q.tenant_id AND (t.created_at AT TIME ZONE 'UTC')::date = q.day)",
    ),
    (
        "a receiver's in_flight is what is being sent to it",
        "SELECT concat(receiver, ': ', r.in_flight, ' for ', c.n) FROM receivers r FULL JOIN (
            SELECT tenant_id, receiver, count(*) AS n FROM callbacks WHERE lease_until IS NOT NULL
            GROUP BY 1, 2) c USING (tenant_id, receiver)
        WHERE r.in_flight IS DISTINCT FROM coalesce(c.n, 0) OR r.in_flight > r.max_in_flight",
    ),
    (
        "a lease only while running, and without one only what awaits an answer",
        "SELECT publication_id::text FROM publications
        WHERE status <> 'running' AND lease_until IS NOT NULL OR (lease_until IS NULL) <> (lease_owner IS NULL)
            OR status = 'running' AND lease_until IS NULL AND NOT confirming",
    ),
    (
        "a feed has no gap, and is removed from its beginning",
        "SELECT concat('at ', f.position, ', removed to ', r.events_removed_to, ', highest ', e.highest, ', events ', e.n)
        FROM feeds f FULL JOIN retentions r USING (tenant_id) LEFT JOIN (
            SELECT tenant_id, max(position) AS highest, min(position) AS lowest, count(*) AS n FROM events
            GROUP BY 1) e USING (tenant_id)
        WHERE f.position IS DISTINCT FROM coalesce(e.highest, r.events_removed_to)
            OR f.position - r.events_removed_to <> coalesce(e.n, 0) OR e.lowest <> r.events_removed_to + 1",
    ),
    (
        "whatever ended has one event of its round, unless that is as old as what was removed",
        "SELECT p.publication_id::text FROM publications p JOIN retentions r USING (tenant_id) CROSS JOIN LATERAL (
            SELECT count(*) AS n FROM events e WHERE e.tenant_id = p.tenant_id AND e.task_id = p.task_id
                AND e.publication_id = p.publication_id AND e.round = p.round AND e.status = p.status) e
        WHERE p.status IN ('success', 'failed', 'login_expired') AND e.n <> 1
            AND NOT coalesce(e.n = 0 AND p.updated_at <= r.events_removed_before, false)",
    ),
    (
        "each end is one event, and each event one end, but for what was removed of either",
        "SELECT concat(to_status, ' of ', publication_id) FROM (
            SELECT tenant_id, publication_id, round, to_status, count(*) AS n, max(at) AS at FROM transitions
            WHERE to_status IN ('success', 'failed', 'login_expired') GROUP BY 1, 2, 3, 4) x
        FULL JOIN (
            SELECT tenant_id, publication_id, round, status AS to_status, count(*) AS n FROM events
            GROUP BY 1, 2, 3, 4) e USING (tenant_id, publication_id, round, to_status)
        LEFT JOIN publications p USING (tenant_id, publication_id) LEFT JOIN tasks t USING (tenant_id, task_id)
        LEFT JOIN retentions r USING (tenant_id)
        WHERE coalesce(x.n, e.n) <> 1 OR x.n <> e.n
            OR x.n IS NULL AND t.content_removed_at IS NULL
            OR e.n IS NULL AND coalesce(x.at > r.events_removed_before, true)",
    ),
    (
        "an event says what its row says",
        "SELECT e.event_id::text FROM events e, LATERAL (SELECT convert_from(body, 'UTF8')::jsonb AS b) j
        WHERE (b ->> 'event_id', b ->> 'task_id', b ->> 'status', b ->> 'type')
            <> (event_id::text, task_id::text, status, 'publication.' || status)
            OR (b -> 'sequence', b -> 'round') <> (to_jsonb(position), to_jsonb(round))",
    ),
    (
        "the last event of a finished task tells its state",
        "SELECT t.external_id FROM tasks t JOIN LATERAL (
            SELECT convert_from(body, 'UTF8')::jsonb ->> 'task_status' AS told FROM events e
            WHERE e.tenant_id = t.tenant_id AND e.task_id = t.task_id ORDER BY position DESC LIMIT 1) e ON true
        WHERE finished_at IS NOT NULL AND told <> CASE WHEN drafts > 0 THEN 'draft' WHEN open > 0 THEN 'running'
            WHEN login_expired > 0 THEN 'login_expired' WHEN failed > 0 THEN 'failed' ELSE 'success' END",
    ),
    (
        "an event is called back if and only if its task has a callback URL",
        "SELECT e.event_id::text FROM events e JOIN tasks t USING (tenant_id, task_id)
        LEFT JOIN callbacks c USING (tenant_id, event_id)
        WHERE t.callback_url IS DISTINCT FROM c.url",
    ),
    (
        // What waits for a login may have been published: it is looked for when the login works again.
        "nothing is open in the journal of what has ended for good, but removals while it is swept",
        "SELECT p.publication_id::text FROM publications p JOIN attempts a USING (tenant_id, publication_id)
        WHERE p.status IN ('success', 'failed') AND a.ended_at IS NULL
            AND (a.kind <> 'remove' OR p.sweep_at IS NULL)",
    ),
    (
        "attempts are counted, also when they were removed",
        "SELECT p.publication_id::text FROM publications p JOIN tasks t USING (tenant_id, task_id) LEFT JOIN (
            SELECT tenant_id, publication_id, count(*) AS n FROM attempts WHERE kind = 'publish'
            GROUP BY 1, 2) a USING (tenant_id, publication_id)
        WHERE p.attempts <> coalesce(a.n, 0) AND t.content_removed_at IS NULL",
    ),
    (
        "tries of callbacks are counted",
        "SELECT c.event_id::text FROM callbacks c LEFT JOIN (
            SELECT tenant_id, event_id, count(*) AS n FROM callback_tries GROUP BY 1, 2) t USING (tenant_id, event_id)
        WHERE c.tries <> coalesce(t.n, 0)",
    ),
    (
        "a replay has left what it has not done, and is done when nothing is left",
        "SELECT concat(replay_id, ': ', coalesce(e.n, 0), ' left of ', r.matched, ', done ', r.replayed)
        FROM replays r FULL JOIN (
            SELECT tenant_id, replay_id, count(*) AS n FROM replay_events GROUP BY 1, 2) e USING (tenant_id, replay_id)
        WHERE (r.matched - r.replayed) IS DISTINCT FROM coalesce(e.n, 0) OR (r.finished_at IS NULL) <> (coalesce(e.n, 0) > 0)",
    ),
];

/// Fails if a rule is broken.
pub(crate) async fn check(pool: &PgPool) {
    let broken = broken(pool).await;
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The rules that are broken, each with what breaks it.
pub(crate) async fn broken(pool: &PgPool) -> Vec<String> {
    let mut broken = Vec::new();
    for (rule, statement) in RULES {
        let found: Vec<String> = sqlx::query_scalar(statement).fetch_all(pool).await.unwrap();
        if !found.is_empty() {
            broken.push(format!("{rule}: {} break it, such as {}", found.len(), found[0]));
        }
    }
    broken
}
