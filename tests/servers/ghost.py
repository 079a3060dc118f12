#!/usr/bin/env python3
"""A real Ghost on 127.0.0.1, on SQLite, from the install that `.ci/platforms/install` makes."""

import base64
import hashlib
import hmac
import json
import os
import secrets
import shutil
import time
from pathlib import Path

from server import Fault, call, environment, main, on_a_port, program, tail, wait_until

VERSION = "5.130.6"
# A first start on a busy machine of two cores migrates an empty database; idle, it takes some 10 s.
START_SECONDS = 120
# Ghost waits this long for requests in flight when it is asked to end.
SHUTDOWN_MILLISECONDS = 3000
# Ghost refuses a token that is valid for longer than 5 minutes.
TOKEN_SECONDS = 60

# Loaded before Ghost. It has no setting against mentions, which it sends to every site that an article links to.
CLOSED = r"""
const dns = require("node:dns");
const net = require("node:net");

const isHere = (host) => host === undefined || /^(localhost|127\.[0-9.]+|::1)$/.test(host);
const refused = () => Object.assign(new Error("This site asks nobody."), { code: "ECONNREFUSED" });

const { lookup } = dns;
dns.lookup = (host, ...rest) =>
    isHere(host) ? lookup(host, ...rest) : process.nextTick(rest[rest.length - 1], refused());
const { lookup: promised } = dns.promises;
dns.promises.lookup = async (host, ...rest) => {
    if (!isHere(host)) throw refused();
    return promised(host, ...rest);
};
const { connect } = net.Socket.prototype;
net.Socket.prototype.connect = function (...given) {
    // Node's own callers give their arguments in one array.
    const [first, second] = Array.isArray(given[0]) ? given[0] : given;
    const host = typeof first === "object" ? first.host : typeof second === "string" ? second : undefined;
    if (isHere(host)) return connect.apply(this, given);
    process.nextTick(() => this.destroy(refused()));
    return this;
};
"""


def install_folder():
    """As `.ci/platforms/install` chooses it."""
    named = os.environ.get("PUBLISH_GHOST")
    if named:
        return Path(named).resolve()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "publish-ingest", f"ghost-{VERSION}").resolve()


def database(folder):
    return folder.path / "content" / "data" / "ghost.db"


def token(admin_api_key):
    """The header of a request to the Admin API."""
    id, secret = admin_api_key.split(":")
    now = int(time.time())

    def part(raw):
        return base64.urlsafe_b64encode(raw).rstrip(b"=")

    head = part(json.dumps({"alg": "HS256", "typ": "JWT", "kid": id}).encode())
    claims = part(json.dumps({"iat": now, "exp": now + TOKEN_SECONDS, "aud": "/admin/"}).encode())
    signed = head + b"." + claims
    signature = part(hmac.new(bytes.fromhex(secret), signed, hashlib.sha256).digest())
    return {"authorization": "Ghost " + (signed + b"." + signature).decode(), "accept-version": "v5.0"}


def configuration(folder, base_url, port):
    """As Ghost reads it from its environment. A file would have to lie in the install, where Ghost must be started."""
    return {
        "NODE_ENV": "production",
        "url": base_url,
        "server__host": "127.0.0.1",
        "server__port": str(port),
        "server__shutdownTimeout": str(SHUTDOWN_MILLISECONDS),
        "database__client": "sqlite3",
        "database__connection__filename": str(database(folder)),
        "database__useNullAsDefault": "true",
        "paths__contentPath": str(folder.path / "content"),
        "logging__level": "info",
        "logging__transports": '["stdout"]',
        "mail__transport": "stub",
        # Logging in from a new place would need a code by mail.
        "security__staffDeviceVerification": "false",
        # Nothing is asked outside: updates, pictures of people, pings.
        "privacy__useTinfoil": "true",
        "imageOptimization__resize": "false",
        "backgroundJobs__emailAnalytics": "false",
    }


def start_site(folder, port, processes):
    base_url = f"http://127.0.0.1:{port}"
    closed = folder.path / "closed.cjs"
    closed.write_text(CLOSED)
    log = folder.path / "ghost.log"
    group = processes.start(
        "Ghost",
        [program("node"), "--require", closed, install_folder() / "index.js"],
        log,
        cwd=install_folder(),
        env=environment(**configuration(folder, base_url, port)),
    )

    def answers():
        try:
            status, _, told = call("GET", f"{base_url}/ghost/api/admin/site/")
        except OSError:
            return False
        return status == 200 and "site" in told

    try:
        wait_until("Ghost", answers, group, port, START_SECONDS, log)
    except BaseException:
        processes.end_one(group)
        raise
    return group, base_url


def set_up(base_url, log):
    """The owner, a custom integration and its keys; nothing is left of what a new site shows. Returns the keys."""
    api = f"{base_url}/ghost/api/admin"
    headers = {"origin": base_url, "accept-version": "v5.0"}
    email, password = "owner@example.org", secrets.token_urlsafe(24)

    def ask(method, path, body=None):
        status, told_headers, told = call(method, api + path, body, headers)
        if status >= 300:
            raise Fault(f"Ghost answered {status} to {method} {path}: {told}; its log, {log}, ends with:\n{tail(log)}")
        return told_headers, told

    owner = {"name": "Owner", "email": email, "password": password, "blogTitle": "A real Ghost"}
    ask("POST", "/authentication/setup/", {"setup": [owner]})
    told_headers, _ = ask("POST", "/session/", {"username": email, "password": password})
    headers["cookie"] = "; ".join(cookie.split(";")[0] for cookie in told_headers.get_all("set-cookie"))
    _, told = ask("POST", "/integrations/?include=api_keys", {"integrations": [{"name": "publish-ingest"}]})
    keys = {key["type"]: key["secret"] for key in told["integrations"][0]["api_keys"]}
    for kind in ["posts", "pages"]:
        _, told = ask("GET", f"/{kind}/?limit=all&fields=id&formats=mobiledoc")
        for one in told[kind]:
            ask("DELETE", f"/{kind}/{one['id']}/")
    return {"admin_api_key": keys["admin"], "content_api_key": keys["content"]}


def run(folder, port, processes):
    source = install_folder()
    if not (source / "index.js").is_file():
        raise Fault(f"Ghost is not in {source}: run .ci/platforms/install, or name its folder with PUBLISH_GHOST")
    kept = folder.kept()
    if kept is None:
        folder.forget("content")
        shutil.copytree(source / "content", folder.path / "content", symlinks=True)

    site, base_url = on_a_port(port or (kept or {}).get("port"), lambda port: start_site(folder, port, processes))
    if kept is None:
        kept = set_up(base_url, folder.path / "ghost.log")
    status, _, told = call("GET", f"{base_url}/ghost/api/admin/posts/?limit=1", None, token(kept["admin_api_key"]))
    if status != 200:
        raise Fault(f"Ghost answered {status} to the key that {folder.path} keeps: {told}; remove the folder's content")
    folder.keep({**kept, "port": int(base_url.rpartition(":")[2])})
    return {
        "base_url": base_url,
        "admin_api_key": kept["admin_api_key"],
        "content_api_key": kept["content_api_key"],
        "site_pids": site.pids(),
        "sqlite": str(database(folder)),
    }


if __name__ == "__main__":
    main("A real Ghost on 127.0.0.1, until standard input ends.", run)
