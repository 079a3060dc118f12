# Sourced by what starts a PostgreSQL by hand, from the installed programs.
# shellcheck shell=bash

# Prints the folder of the programs; PUBLISH_POSTGRES_BIN names it where they are not in PATH or in Debian's usual folder.
find_programs() {
    local folder
    for folder in "${PUBLISH_POSTGRES_BIN:-}" $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -rV) \
        $(pg_config --bindir 2>/dev/null); do
        if [[ -x $folder/initdb && -x $folder/pg_ctl ]]; then
            echo "$folder"
            return
        fi
    done
    echo "found no folder with initdb and pg_ctl: install PostgreSQL, or set PUBLISH_POSTGRES_BIN" >&2
    return 1
}

# start_postgres PROGRAMS FOLDER: an empty server that listens on a socket in the folder alone, its superuser `postgres`
# without a password. stop_postgres ends it.
start_postgres() {
    postgres_programs=$1 postgres_folder=$2
    # initdb refuses root.
    as_owner=()
    if ((EUID == 0)); then
        local owner=postgres
        id -u "$owner" >/dev/null 2>&1 || owner=nobody
        chown "$owner" "$postgres_folder"
        as_owner=(setpriv --reuid "$owner" --regid "$(id -g "$owner")" --clear-groups)
    fi
    (
        cd /
        "${as_owner[@]}" "$postgres_programs/initdb" -D "$postgres_folder/data" -U postgres -A trust -E UTF8 --locale=C \
            --no-sync >"$postgres_folder/initdb.log" ||
            { cat "$postgres_folder/initdb.log" >&2; exit 1; }
        "${as_owner[@]}" "$postgres_programs/pg_ctl" start -s -w -D "$postgres_folder/data" -l "$postgres_folder/data/log" \
            -o "-c listen_addresses= -c unix_socket_directories=$postgres_folder -c fsync=off" </dev/null ||
            { cat "$postgres_folder/data/log" >&2; exit 1; }
    )
}

stop_postgres() {
    if [[ -n ${postgres_folder:-} && -e $postgres_folder/data/postmaster.pid ]]; then
        (cd / && "${as_owner[@]}" "$postgres_programs/pg_ctl" stop -s -m immediate -D "$postgres_folder/data") || true
    fi
}
