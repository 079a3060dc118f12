# Sourced by the checks that talk to a running program: ends what they started, whatever happens; starts `dev`.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/publish-check-XXXXXX")
# Settings and proxies of whoever runs this are not part of the check.
unset DATABASE_URL "${!PUBLISH_@}" http_proxy HTTP_PROXY all_proxy ALL_PROXY
# The folder of `dev`, removed at the end.
dev_folder=

fail() {
    echo "FAULT: $*" >&2
    exit 1
}

# until_true SECONDS COMMAND…: looks ten times a second.
until_true() {
    local tries=$(($1 * 10))
    shift
    until "$@"; do
        ((tries-- > 0)) || return 1
        sleep 0.1
    done
}

# Also when nobody has asked how it ended: in a container there may be no init that does.
is_gone() { ! kill -0 "$1" 2>/dev/null || grep -qs '^State:.Z' "/proc/$1/status"; }

# start_dev OUTPUT [NAME=value…]: from the root, as the README says it; returns when it says that it is ready.
# Sets dev_pid and url.
start_dev() {
    local output=$1
    shift
    # Cargo gives its process to the program, so this is the program's number.
    (cd "$root" && exec env "$@" cargo run --release -- dev >"$output" 2>"$output.err" </dev/null) &
    dev_pid=$!
    # It may have to be compiled first.
    until_true 1800 is_ready_or_gone "$output"
    grep -q 'is ready on' "$output" || { tail -30 "$output.err" >&2; fail "dev did not start"; }
    url=$(sed -n 's/.*is ready on //p' "$output")
}

is_ready_or_gone() { grep -qs 'is ready on' "$1" || is_gone "$dev_pid"; }

stop_dev() {
    kill -TERM "$dev_pid"
    until_true 30 is_gone "$dev_pid" || fail "dev did not end within 30 s of TERM"
    wait "$dev_pid" || fail "dev ended with $?"
}

end_all() {
    local status=$? pid pointer
    trap - EXIT
    set +e
    # Only children that still run: the number of one that has ended may be somebody else's by now.
    for pid in $(jobs -pr); do kill -TERM "$pid" 2>/dev/null; done
    for pid in $(jobs -pr); do
        until_true 30 is_gone "$pid" || kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    if [[ -n $dev_folder ]]; then
        # In a folder that is closed to the database's account, the data is elsewhere.
        pointer=$dev_folder/postgres/data-is-at
        [[ -f $pointer ]] && rm -rf "$(cat "$pointer")"
        rm -rf "$dev_folder"
    fi
    # Of what is sourced beside this.
    [[ $(type -t stop_postgres) == function ]] && stop_postgres
    rm -rf "$work"
    exit "$status"
}
trap end_all EXIT
trap 'exit 130' INT TERM HUP

# json FILE EXPRESSION: of the document `d` in the file, as text.
json() {
    python3 -c 'import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
v = eval(sys.argv[2])
print(v if isinstance(v, str) else json.dumps(v))' "$1" "$2"
}

# expect WHAT FOUND WANTED
expect() {
    [[ $2 == "$3" ]] || fail "$1: found $2, not $3"
    echo "  $1: $2"
}

# use_python [REQUIREMENTS]: a venv with the packages of that file in .ci, by default requirements.txt, kept in target/;
# `python` is its interpreter.
use_python() {
    local requirements=$root/.ci/${1:-requirements.txt}
    local venv=$root/target/ci/python-$(basename "$requirements" .txt)
    python=$venv/bin/python
    cmp -s "$requirements" "$venv/requirements.txt" && return
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$python" -m pip install -q --disable-pip-version-check -r "$requirements"
    cp "$requirements" "$venv/requirements.txt"
}

# use_node: a folder with the packages of receivers/package.json, kept in target/; sets `node_folder`.
use_node() {
    node_folder=$root/target/ci/node
    cmp -s "$root/.ci/receivers/package-lock.json" "$node_folder/installed" && return
    rm -rf "$node_folder"
    mkdir -p "$node_folder"
    cp "$root"/.ci/receivers/package*.json "$node_folder/"
    (cd "$node_folder" && npm ci --silent --ignore-scripts --no-audit --no-fund)
    cp "$root/.ci/receivers/package-lock.json" "$node_folder/installed"
}
