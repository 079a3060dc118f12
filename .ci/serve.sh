#!/usr/bin/env bash
# What docker-compose.yml runs, tried without Docker: the same commands, against a PostgreSQL started by hand.
#
#   .ci/serve.sh [PROGRAM]    by default the release build
set -euo pipefail
# shellcheck source=dev.sh
source "$(dirname "$0")/dev.sh"
# shellcheck source=postgres.sh
source "$(dirname "$0")/postgres.sh"

program=${1:-}
if [[ -z $program ]]; then
    (cd "$root" && cargo build -q --locked --release)
    program=$root/target/release/publish-ingest
fi
program=$(realpath "$program")

# The database's account passes through.
chmod 711 "$work"
mkdir "$work/postgres" "$work/site"
programs=$(find_programs)
start_postgres "$programs" "$work/postgres"
(cd / && "$programs/createdb" -h "$work/postgres" -U postgres publish)
unset "${!PG@}"
export DATABASE_URL="postgres://postgres@localhost/publish?host=$work/postgres"
serve_url="postgres://publish_serve:serve@localhost/publish?host=$work/postgres"
PUBLISH_MASTER_KEY=$(head -c 32 /dev/urandom | base64)
export PUBLISH_MASTER_KEY

echo "serve before migrate"
if PUBLISH_LISTEN=127.0.0.1:0 "$program" serve 2>"$work/refused"; then fail "serve takes an empty database"; fi
grep -q 'publish-ingest migrate' "$work/refused" || { cat "$work/refused" >&2; fail "it does not say what to do"; }

echo "the role, migrate, tenant create, key create"
for _ in once again; do
    (cd / && SERVE_PASSWORD=serve PGHOST=$work/postgres "$programs/psql" -q -v ON_ERROR_STOP=1 -U postgres -d publish \
        -f "$root/deployment/role.sql")
    "$program" migrate --grant publish_serve --json >"$work/migrated"
done
echo "  schema: $(json "$work/migrated" 'd["schema"]')"
"$program" tenant create acme --json >"$work/tenant"
expect "the tenant" "$(json "$work/tenant" 'd["name"]')" acme
"$program" key create acme --scopes publish,read,manage --json >"$work/key"
api_key=$(json "$work/key" 'd["api_key"]')

echo "serve"
start_serve() {
    (
        cd / && DATABASE_URL=$serve_url PUBLISH_LISTEN=127.0.0.1:0 PUBLISH_LOG_FORMAT=json PUBLISH_SITE_ROOT=$work/site \
            PUBLISH_SITE_URL=https://example.org exec "$program" serve >"$work/out" 2>>"$work/log" </dev/null
    ) &
    serve_pid=$!
    until_true 30 started || fail "serve did not start"
    grep -q 'is ready on' "$work/out" || { cat "$work/log" >&2; fail "serve did not start"; }
    url=$(sed -n 's/.*is ready on //p' "$work/out")
}
started() { grep -qs 'is ready on' "$work/out" || is_gone "$serve_pid"; }
stop_serve() {
    kill -TERM "$serve_pid"
    # What is promised, and a little for a busy machine.
    until_true 15 is_gone "$serve_pid" || fail "serve did not end within its time"
    wait "$serve_pid" || fail "serve ended with $?"
}
call() {
    curl -sS --max-time 10 -H "authorization: Bearer $api_key" -H 'content-type: application/json' \
        -o "$work/answer" -w '%{http_code}' "$@"
}
start_serve
PUBLISH_LISTEN=${url#http://} "$program" health
expect readyz "$(call "$url/readyz")" 200
expect "the account" "$(call -X PUT "$url/accounts/static_site/blog1" -d '{"settings": {"site": "blog1"}}')" 200
expect "the group" "$(call -X PUT "$url/groups/main" \
    -d '{"accounts": [{"platform": "static_site", "account_id": "blog1"}]}')" 200

echo "an article"
article='{"external_id": "hello-1", "group_code": "main", "title": "Hello", "content_html": "<p>The first article.</p>"}'
expect published "$(call "$url/publish" -d "$article")" 200
expect created "$(json "$work/answer" 'd["created"]')" true
has_ended() {
    [[ $(call "$url/tasks/hello-1") == 200 && $(json "$work/answer" 'd["status"]') != @(submitted|running) ]]
}
until_true 20 has_ended || fail "the task did not end: $(cat "$work/answer")"
expect status "$(json "$work/answer" 'd["status"]')" success
pages() { find "$work/site/acme/blog1" -name '*.html' ! -name 'index*.html'; }
expect "pages on disk" "$(pages | wc -l)" 1
grep -q 'The first article.' "$(pages)" || fail "the page does not hold the article"

echo "ended, and started again"
stop_serve
start_serve
expect "published again" "$(call "$url/publish" -d "$article")" 200
expect created "$(json "$work/answer" 'd["created"]')" false
expect status "$(json "$work/answer" 'd["status"]')" success
expect "pages on disk" "$(pages | wc -l)" 1
stop_serve
python3 -c 'import json, sys
for line in open(sys.argv[1], encoding="utf-8"): json.loads(line)' "$work/log" || fail "the log is not one object a line"
! grep -q 'may change and drop the tables' "$work/log" || fail "it serves as the owner of the tables"
! grep -qF -e "$api_key" -e "$PUBLISH_MASTER_KEY" "$work/log" || fail "the log holds a secret"
echo "  ended in order"
