#!/usr/bin/env python3
"""An example of what stands behind an `http_bridge` account: it publishes articles into a folder.

    pip install standardwebhooks
    BRIDGE_SECRET=whsec_$(openssl rand -base64 32) python3 receiver.py --folder ./published --port 9090

Put what your platform needs (a browser that logs in and types, a call to an in-house system) in place of `Platform`.
What must stay is the order of `Bridge.handle`: check the signature, answer from memory, look before you post, remember a
success before you answer it. Whoever keeps to it may be asked again at any time, after any crash, and publishes once.

With `--later` it answers 202 at once, works in the background and reports by `POST /bridge/{publication_id}/results`; that
needs PUBLISH_URL and PUBLISH_API_KEY (a key with the scope `publish`).

To see a login expire, create a file named `logged-out` in the folder; remove it to log in again.
"""

import argparse
import base64
import binascii
import html
import json
import os
import sqlite3
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

# An article has at most 2 MiB unless the operator of the service sets another limit; JSON may escape it to a multiple.
BODY_MAX_BYTES = 16 * 1024 * 1024

# Reports are sent again until the service has taken them: it may be down just now.
REPORT_WAITS_SECONDS = (1, 2, 5, 10, 30, 60)


class LoggedOut(Exception):
    """The platform does not let us in."""


class Platform:
    """A folder with a page for each article, named by its key. Yours is a website, and slower."""

    def __init__(self, folder: Path, base_url: str):
        self.folder = folder
        self.base_url = base_url.rstrip("/")

    def find(self, key: str):
        """The article's URL, if it is published: a crash may have come between publishing and remembering."""
        return self.url(key) if self.page(key).exists() else None

    def publish(self, key: str, article: dict) -> str:
        if (self.folder / "logged-out").exists():
            raise LoggedOut("the session has expired: log in again")
        title, content = html.escape(article["title"]), article["content_html"]
        draft = self.folder / f".{key}.part"
        with open(draft, "w", encoding="utf-8") as page:
            page.write(f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title}</h1>{content}")
            page.flush()
            os.fsync(page.fileno())
        # A page is there as a whole or not at all.
        draft.rename(self.page(key))
        return self.url(key)

    def page(self, key: str) -> Path:
        return self.folder / f"{key}.html"

    def url(self, key: str) -> str:
        return f"{self.base_url}/{key}.html"


class Memory:
    """What was published, by `webhook-id`. Failures are not remembered: the next request shall try again."""

    def __init__(self, path: Path):
        self.database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.lock = threading.Lock()
        self.database.execute("PRAGMA synchronous = FULL")
        self.database.execute("CREATE TABLE IF NOT EXISTS published (key TEXT PRIMARY KEY, url TEXT NOT NULL)")

    def url(self, key: str):
        with self.lock:
            row = self.database.execute("SELECT url FROM published WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def remember(self, key: str, url: str):
        with self.lock:
            self.database.execute("INSERT OR IGNORE INTO published VALUES (?, ?)", (key, url))


class Bridge:
    def __init__(self, platform: Platform, memory: Memory, secret: str, later: bool, slow_seconds: float):
        self.platform, self.memory, self.later, self.slow_seconds = platform, memory, later, slow_seconds
        self.webhook = Webhook(secret)
        self.lock = threading.Lock()
        self.working = set()

    # Requests for one article may overlap: an answer that was lost is asked for again while the first still works.
    def handle(self, body: bytes, headers: dict):
        """The status and the JSON to answer."""
        try:
            self.webhook.verify(body, headers)
        except WebhookVerificationError as error:
            print(f"refused: {error}: is it the account's secret, and this machine's clock right?", file=sys.stderr)
            return 401, {"detail": f"not signed with our secret: {error}"}
        job, key = json.loads(body), headers["webhook-id"]
        if url := self.memory.url(key):
            return 200, success(key, url)
        with self.lock:
            # Two requests for one article at once: the second is told that the first is at work.
            if key in self.working:
                return 202, {}
            self.working.add(key)
        if self.later:
            threading.Thread(target=self.work_and_report, args=(key, job), daemon=True).start()
            return 202, {}
        try:
            return 200, self.work(key, job)
        finally:
            self.done(key)

    def done(self, key: str):
        with self.lock:
            self.working.discard(key)

    def work(self, key: str, job: dict) -> dict:
        """Publishes, if that was not done before; returns what came of it."""
        try:
            time.sleep(self.slow_seconds)
            url = self.platform.find(key) or self.platform.publish(key, job["article"])
            self.memory.remember(key, url)
            return success(key, url)
        except LoggedOut as error:
            return {"status": "login_expired", "error": {"code": "logged_out", "message": str(error)}}
        except (KeyError, TypeError) as error:
            return {"status": "failed", "error": {"code": "bad_article", "message": f"cannot be read: {error!r}"}}

    def work_and_report(self, key: str, job: dict):
        # At work until the report is taken: a failure that was forgotten before could be reported while a second try,
        # begun meanwhile, publishes.
        try:
            self.report(job, {"round": job["round"], **self.work(key, job)})
        finally:
            self.done(key)

    def report(self, job: dict, result: dict):
        request = urllib.request.Request(
            f"{os.environ['PUBLISH_URL']}/bridge/{job['publication_id']}/results",
            data=json.dumps(result).encode(),
            headers={
                "content-type": "application/json",
                "authorization": f"Bearer {os.environ['PUBLISH_API_KEY']}",
            },
        )
        for wait in (*REPORT_WAITS_SECONDS, None):
            try:
                urllib.request.urlopen(request, timeout=10).close()
                return
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    # 409: it knows already, or asks in another round by now.
                    return print(f"{job['external_id']}: the report was answered {error.code}", file=sys.stderr)
            except OSError as error:
                print(f"{job['external_id']}: cannot report yet: {error}", file=sys.stderr)
            if wait is None:
                # It will ask again, and be answered from memory.
                return
            time.sleep(wait)


def success(key: str, url: str) -> dict:
    return {"status": "success", "url": url, "remote_id": key}


def handler(bridge: Bridge):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            """Shows what was published, so that the URLs it reports can be opened."""
            page = bridge.platform.folder / Path(self.path).name
            if page.suffix != ".html" or not page.exists():
                return self.answer(404, {"detail": "no such page"})
            self.send(200, "text/html", page.read_bytes())

        def do_POST(self):
            length = self.headers.get("content-length", "")
            if not length.isdigit() or int(length) > BODY_MAX_BYTES:
                self.close_connection = True
                return self.answer(413, {"detail": "the body has no length, or is too large"})
            body = self.rfile.read(int(length))
            headers = {name.lower(): value for name, value in self.headers.items()}
            try:
                status, answer = bridge.handle(body, headers)
            except Exception as error:  # Whatever went wrong is unknown to the service, and it asks again.
                status, answer = 500, {"detail": repr(error)}
            self.answer(status, answer)

        def answer(self, status: int, answer: dict):
            self.send(status, "application/json", json.dumps(answer).encode())

        def send(self, status: int, content_type: str, body: bytes):
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def is_secret(text: str) -> bool:
    try:
        return text.startswith("whsec_") and 24 <= len(base64.b64decode(text[6:], validate=True)) <= 64
    except binascii.Error:
        return False


def main():
    parser = argparse.ArgumentParser(description="An http_bridge endpoint that publishes into a folder.")
    parser.add_argument("--folder", type=Path, required=True, help="where pages and memory are kept")
    parser.add_argument("--port", type=int, default=9090, help="listens on 127.0.0.1 only (default 9090; 0: any)")
    parser.add_argument("--base-url", help="where the folder is served (default: by this program)")
    parser.add_argument("--later", action="store_true", help="answer 202, work in the background, report")
    parser.add_argument("--slow", type=float, default=0, metavar="SECONDS", help="work that long on each article")
    options = parser.parse_args()
    needed = ["BRIDGE_SECRET"] + (["PUBLISH_URL", "PUBLISH_API_KEY"] if options.later else [])
    if missing := [name for name in needed if not os.environ.get(name)]:
        sys.exit(f"set {', '.join(missing)}")
    if not is_secret(os.environ["BRIDGE_SECRET"]):
        sys.exit("BRIDGE_SECRET is whsec_ and 24 to 64 bytes in base64: whsec_$(openssl rand -base64 32)")
    options.folder.mkdir(parents=True, exist_ok=True)
    memory = Memory(options.folder / "memory.db")
    platform = Platform(options.folder, options.base_url or "")
    bridge = Bridge(platform, memory, os.environ["BRIDGE_SECRET"], options.later, options.slow)
    server = ThreadingHTTPServer(("127.0.0.1", options.port), handler(bridge))
    platform.base_url = platform.base_url or f"http://127.0.0.1:{server.server_address[1]}"
    print(f"listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
