#!/usr/bin/env python3
"""A real WordPress on 127.0.0.1, with a MariaDB of its own, from Debian's packages (`.ci/platforms/install`)."""

import base64
import json
import os
import secrets
import shutil
import socket
import subprocess
from pathlib import Path

from server import SOCKET_PATH_BYTES, Fault, Processes, call, environment, main, on_a_port, program, tail, wait_until

SOURCE = Path("/usr/share/wordpress")
DATABASE = "wordpress"
# Requests at once; PHP's own server answers one after the other without it.
WORKERS = 4
# On a busy machine of two cores; idle, each takes 2 s.
START_SECONDS = 60
# The first owns the site; a contributor may not publish.
USERS = [("administrator", "publisher"), ("editor", "editor"), ("contributor", "contributor")]

MARIADB_SETTINGS = [
    "--skip-networking",
    "--skip-name-resolve",
    "--skip-log-bin",
    # Nothing here has to outlive the machine, only the server's own end.
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=16M",
    "--performance-schema=0",
    "--key-buffer-size=1M",
    "--aria-pagecache-buffer-size=8M",
    "--max-connections=64",
]

PHP_SETTINGS = {
    "display_errors": "0",
    "log_errors": "1",
    "memory_limit": "256M",
    # Of a raw body too, as media are sent.
    "post_max_size": "64M",
    "upload_max_filesize": "64M",
    "date.timezone": "UTC",
    "sendmail_path": "/bin/false",
    "allow_url_fopen": "0",
}

# Loaded before WordPress defines its own: no mail, and nothing is asked outside.
MU_PLUGIN = r"""<?php
function wp_mail() { return true; }
add_filter( 'pre_http_request', function () { return new WP_Error( 'closed', 'This site asks nobody.' ); }, 1 );
"""

CONFIG = r"""<?php
define( 'DB_NAME', '%(database)s' );
define( 'DB_USER', 'root' );
define( 'DB_PASSWORD', '' );
define( 'DB_HOST', 'localhost:%(socket)s' );
define( 'DB_CHARSET', 'utf8mb4' );
define( 'DB_COLLATE', '' );
%(salts)s
define( 'WP_HOME', '%(base_url)s' );
define( 'WP_SITEURL', '%(base_url)s' );
// Without it, application passwords need https.
define( 'WP_ENVIRONMENT_TYPE', 'local' );
define( 'WP_DEBUG', false );
define( 'WP_HTTP_BLOCK_EXTERNAL', true );
define( 'DISABLE_WP_CRON', true );
define( 'AUTOMATIC_UPDATER_DISABLED', true );
define( 'DISALLOW_FILE_MODS', true );
$table_prefix = 'wp_';
if ( ! defined( 'ABSPATH' ) ) { define( 'ABSPATH', __DIR__ . '/' ); }
require_once ABSPATH . 'wp-settings.php';
"""

# Prints a JSON object of user names and application passwords on its last line.
INSTALL = r"""<?php
[ , $site, $socket, $database, $users ] = $argv;
mysqli_report( MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT );
$server = new mysqli( 'localhost', 'root', '', '', 0, $socket );
$server->query( "CREATE DATABASE $database CHARACTER SET utf8mb4" );
define( 'WP_INSTALLING', true );
$_SERVER['HTTP_HOST'] = 'localhost';
require "$site/wp-load.php";
require ABSPATH . 'wp-admin/includes/upgrade.php';
$passwords = [];
foreach ( json_decode( $users ) as [ $role, $name ] ) {
    if ( $role === 'administrator' ) {
        $made = wp_install( 'A real WordPress', $name, "$name@example.org", true, '', wp_generate_password( 24 ) );
        $id = $made['user_id'];
    } else {
        $id = wp_insert_user( [ 'user_login' => $name, 'user_email' => "$name@example.org", 'role' => $role,
                                'user_pass' => wp_generate_password( 24 ) ] );
    }
    if ( is_wp_error( $id ) ) { throw new Exception( $id->get_error_message() ); }
    $made = WP_Application_Passwords::create_new_application_password( $id, [ 'name' => 'publish-ingest' ] );
    if ( is_wp_error( $made ) ) { throw new Exception( $made->get_error_message() ); }
    $passwords[ $name ] = $made[0];
}
// What a new site says hello with would only be counted.
foreach ( get_posts( [ 'post_type' => 'any', 'post_status' => 'any', 'numberposts' => -1 ] ) as $post ) {
    wp_delete_post( $post->ID, true );
}
$wp_rewrite->set_permalink_structure( '/%postname%/' );
$wp_rewrite->flush_rules( false );
echo "\n", json_encode( $passwords ), "\n";
"""


def as_owner():
    """What makes a process run as the owner of the database: MariaDB does not run as root."""
    return {"user": "mysql", "group": "mysql", "extra_groups": []} if os.geteuid() == 0 else {}


def make_home(home):
    """The database's folder, closed to others, and reachable for its owner."""
    home.mkdir(mode=0o700, exist_ok=True)
    if os.geteuid() != 0:
        return
    try:
        shutil.chown(home, "mysql", "mysql")
    except LookupError:
        raise Fault("there is no user mysql to run MariaDB: run .ci/platforms/install as root") from None
    if subprocess.run(["/usr/bin/test", "-w", home], cwd="/", **as_owner()).returncode != 0:
        raise Fault(
            f"{home} cannot be reached by the user mysql, as which MariaDB runs when this is started by root: "
            "name a folder whose parents are open to others, such as one in /var/tmp (/root is closed)"
        )


def finish(processes: Processes, name, arguments, log, **options):
    """Runs a command to its end, as one of what ends with the script; returns what it printed."""
    group = processes.start(name, arguments, log, **options)
    status = group.process.wait()
    processes.end_one(group)
    told = Path(log).read_text(errors="replace")
    if status != 0:
        raise Fault(f"{name} ended with {status}; its log, {log}, ends with:\n{tail(log)}")
    return told


def database_answers(path):
    """MariaDB greets before it is asked anything; the fifth byte is the protocol's version."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        try:
            client.connect(os.fspath(path))
            return client.recv(5)[4:5] == b"\x0a"
        except OSError:
            return False


def start_database(folder, processes):
    home = folder.path / "mysql"
    path = home / "socket"
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise Fault(f"{path} is longer than a socket's path may be, {SOCKET_PATH_BYTES} bytes: name a folder higher up")
    make_home(home)
    data = home / "data"
    if folder.kept() is None:
        finish(
            processes,
            "mariadb-install-db",
            [program("mariadb-install-db"), "--no-defaults", f"--datadir={data}", "--skip-test-db"]
            + ["--auth-root-authentication-method=normal", "--innodb-log-file-size=16M", "--innodb-buffer-pool-size=16M"],
            folder.path / "mariadb-install.log",
            cwd="/",
            env=environment(),
            **as_owner(),
        )
    log = folder.path / "mariadb.log"
    group = processes.start(
        "MariaDB",
        [program("mariadbd"), "--no-defaults", f"--datadir={data}", f"--socket={path}", f"--pid-file={home}/pid"]
        + MARIADB_SETTINGS,
        log,
        cwd="/",
        env=environment(),
        **as_owner(),
    )
    wait_until("MariaDB", lambda: database_answers(path), group, None, START_SECONDS, log)
    return group, path


def php(*arguments):
    settings = [word for name, value in PHP_SETTINGS.items() for word in ("-d", f"{name}={value}")]
    return [program("php"), *settings, *arguments]


def write_config(site, database_socket, base_url, salts):
    lines = "\n".join(f"define( '{name}', '{value}' );" for name, value in salts.items())
    values = {"database": DATABASE, "socket": database_socket, "base_url": base_url, "salts": lines}
    (site / "wp-config.php").write_text(CONFIG % values)


def install(folder, database_socket, processes):
    """The site's files and its database; returns what has to be kept."""
    site = folder.path / "site"
    shutil.copytree(SOURCE, site)
    (site / "wp-content" / "mu-plugins").mkdir()
    (site / "wp-content" / "mu-plugins" / "closed.php").write_text(MU_PLUGIN)
    names = ["AUTH_KEY", "SECURE_AUTH_KEY", "LOGGED_IN_KEY", "NONCE_KEY"]
    names += [name.replace("KEY", "SALT") for name in names]
    salts = {name: secrets.token_hex(32) for name in names}
    write_config(site, database_socket, "http://127.0.0.1", salts)
    script = folder.path / "install.php"
    script.write_text(INSTALL)
    log = folder.path / "install.log"
    told = finish(
        processes,
        "the installation of WordPress",
        php(script, site, database_socket, DATABASE, json.dumps(USERS)),
        log,
        cwd=site,
        env=environment(),
    )
    passwords = told.strip().splitlines()[-1]
    # It holds them too.
    log.unlink()
    return {"salts": salts, "passwords": json.loads(passwords)}


def start_site(folder, port, kept, database_socket, processes):
    site = folder.path / "site"
    base_url = f"http://127.0.0.1:{port}"
    write_config(site, database_socket, base_url, kept["salts"])
    log = folder.path / "php.log"
    group = processes.start(
        "PHP",
        php("-S", f"127.0.0.1:{port}", "-t", site),
        log,
        cwd=site,
        env=environment(PHP_CLI_SERVER_WORKERS=str(WORKERS)),
    )
    name = USERS[0][1]

    def answers():
        # Its password is known to no other site that may listen here.
        try:
            status, _, told = call("GET", f"{base_url}/wp-json/wp/v2/users/me?context=edit", None, basic(name, kept))
        except OSError:
            return False
        return status == 200 and told["username"] == name

    try:
        wait_until("WordPress", answers, group, port, START_SECONDS, log)
    except BaseException:
        processes.end_one(group)
        raise
    return group, base_url


def basic(name, kept):
    pair = f"{name}:{kept['passwords'][name]}"
    return {"authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def run(folder, port, processes):
    if not (SOURCE / "wp-login.php").is_file():
        raise Fault(f"WordPress is not in {SOURCE}: run .ci/platforms/install as root, on Debian")
    if folder.kept() is None:
        folder.forget("mysql", "site")
    database, database_socket = start_database(folder, processes)
    kept = folder.kept()
    if kept is None:
        kept = install(folder, database_socket, processes)
        folder.keep(kept)

    def start(port):
        return start_site(folder, port, kept, database_socket, processes)

    site, base_url = on_a_port(port or kept.get("port"), start)
    folder.keep({**kept, "port": int(base_url.rpartition(":")[2])})
    logins = [
        {"role": role, "username": name, "application_password": kept["passwords"][name]} for role, name in USERS
    ]
    return {
        "base_url": base_url,
        "username": logins[0]["username"],
        "application_password": logins[0]["application_password"],
        "other": logins[1:],
        "site_pids": site.pids(),
        "database_pids": database.pids(),
        "mysql_socket": str(database_socket),
        "database": DATABASE,
    }


if __name__ == "__main__":
    main("A real WordPress on 127.0.0.1, until standard input ends.", run)
