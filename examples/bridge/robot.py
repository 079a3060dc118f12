#!/usr/bin/env python3
"""An example of a robot that fetches its articles: it stands behind a firewall, and publishes into a folder.

    PUBLISH_URL=… PUBLISH_API_KEY=… python3 robot.py --account robot --folder ./published --base-url https://example.org

The account is one of `http_bridge` without an `endpoint`; the key needs the scope `publish`. Nothing but Python is needed.

Put what your platform needs (a browser that logs in and types, a call to an in-house system) in place of `Platform`. What
must stay is the order of `Robot.work`: write down what was fetched, look before you post, ask whether it is still yours right
before you post, remember what you posted, report until somebody has taken it. Whoever keeps to it may be killed at any moment,
and publishes once. Of several robots for one account, each must be able to find on the platform what another has posted.

To see a login expire, create a file named `logged-out` in the folder; remove it to log in again.
"""

import argparse
import html
import json
import os
import sqlite3
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

# How often a robot with nothing to do asks for more.
POLL_SECONDS = 1

# How often the service is told that an article is still being worked on: several times within its five minutes.
HEARTBEAT_SECONDS = 60

# A service that is down is asked again.
AGAIN_SECONDS = (1, 2, 5, 10, 30, 60)


class LoggedOut(Exception):
    """The platform does not let us in."""


class Platform:
    """A folder with a page for each article, named by its key. Yours is a website, and slower."""

    def __init__(self, folder: Path, base_url: str):
        self.folder, self.base_url = folder, base_url.rstrip("/")

    def find(self, key: str):
        """The article's URL, if it is published: by this robot before a crash, or by another."""
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
        with open(self.folder / "posted.log", "a", encoding="utf-8") as log:
            log.write(f"{key}\n")
        return self.url(key)

    def page(self, key: str) -> Path:
        return self.folder / f"{key}.html"

    def url(self, key: str) -> str:
        return f"{self.base_url}/{key}.html"


class Memory:
    """What was fetched and is not reported yet; and what was published, by `webhook_id`, for good."""

    def __init__(self, path: Path):
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.execute("PRAGMA synchronous = FULL")
        self.database.execute("CREATE TABLE IF NOT EXISTS fetched (lease_id TEXT PRIMARY KEY, job TEXT NOT NULL)")
        self.database.execute("CREATE TABLE IF NOT EXISTS published (key TEXT PRIMARY KEY, url TEXT NOT NULL)")

    def fetched(self) -> list:
        return [json.loads(row[0]) for row in self.database.execute("SELECT job FROM fetched ORDER BY rowid")]

    def take(self, job: dict):
        self.database.execute("INSERT OR IGNORE INTO fetched VALUES (?, ?)", (job["lease_id"], json.dumps(job)))

    def drop(self, job: dict):
        self.database.execute("DELETE FROM fetched WHERE lease_id = ?", (job["lease_id"],))

    def url(self, key: str):
        row = self.database.execute("SELECT url FROM published WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def remember(self, key: str, url: str):
        self.database.execute("INSERT OR IGNORE INTO published VALUES (?, ?)", (key, url))


class Service:
    """The calls of a robot. One that is down is asked again; what it refuses is returned."""

    def __init__(self, url: str, api_key: str):
        self.base, self.api_key = url.rstrip("/"), api_key

    def claim(self, account_ids: list) -> list:
        status, answer = self.call("claim", {"platform": "http_bridge", "account_ids": account_ids, "max": 1})
        if status != 200:
            sys.exit(f"nothing can be fetched: {status} {answer.get('detail')} {answer.get('errors', '')}")
        return answer["jobs"]

    def keep(self, job: dict) -> bool:
        """Whether the article is still ours; if so, for five minutes more."""
        body = {"round": job["round"], "lease_id": job["lease_id"]}
        return self.call(f"{job['publication_id']}/heartbeat", body)[0] == 200

    def report(self, job: dict, result: dict):
        body = {"round": job["round"], "lease_id": job["lease_id"], **result}
        status, answer = self.call(f"{job['publication_id']}/results", body)
        # 409: somebody else has reported it, or it is another robot's by now.
        if status not in (200, 409):
            print(f"the report was refused: {status} {answer.get('detail')}", file=sys.stderr)

    def call(self, path: str, body: dict):
        request = urllib.request.Request(f"{self.base}/bridge/{path}", data=json.dumps(body).encode(), method="POST")
        request.add_header("authorization", f"Bearer {self.api_key}")
        request.add_header("content-type", "application/json")
        tried = 0
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return answer.status, json.loads(answer.read())
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code != 429:
                    return error.code, json.loads(error.read() or b"{}")
                why = error
            except (OSError, ValueError) as error:
                why = error
            wait = AGAIN_SECONDS[min(tried, len(AGAIN_SECONDS) - 1)]
            print(f"{why}: again in {wait} s", file=sys.stderr)
            time.sleep(wait)
            tried += 1


class Heartbeats:
    """Keeps an article ours while it is worked on."""

    def __init__(self, service: Service, job: dict):
        self.service, self.job, self.over = service, job, threading.Event()

    def __enter__(self):
        threading.Thread(target=self.beat, daemon=True).start()

    def __exit__(self, *_):
        self.over.set()

    def beat(self):
        while not self.over.wait(HEARTBEAT_SECONDS):
            if not self.service.keep(self.job):
                return


class Robot:
    def __init__(self, platform: Platform, memory: Memory, service: Service, slow: float, slow_report: float):
        self.platform, self.memory, self.service = platform, memory, service
        self.slow, self.slow_report = slow, slow_report

    def run(self, account_ids: list):
        # What an earlier life of this robot fetched and did not report.
        for job in self.memory.fetched():
            self.work(job)
        while True:
            jobs = self.service.claim(account_ids)
            for job in jobs:
                self.memory.take(job)
                self.work(job)
            if not jobs:
                time.sleep(POLL_SECONDS)

    def work(self, job: dict):
        print(f"{job['external_id']}: fetched, attempted before: {job['attempted_before']}", flush=True)
        with Heartbeats(self.service, job):
            result = self.publish(job)
        if result:
            self.service.report(job, result)
        self.memory.drop(job)

    def publish(self, job: dict):
        """What came of it; none if the article is not ours any more, and nothing was done."""
        key = job["webhook_id"]
        try:
            # Always, and not only where `attempted_before` says so: it costs little, and a look never posts twice.
            url = self.memory.url(key) or self.platform.find(key)
            if not url:
                time.sleep(self.slow)
                if not self.service.keep(job):
                    return None
                url = self.platform.publish(key, job["article"])
                print(f"{job['external_id']}: posted", flush=True)
            time.sleep(self.slow_report)
            self.memory.remember(key, url)
            return {"status": "success", "url": url, "remote_id": key}
        except LoggedOut as error:
            return {"status": "login_expired", "error": {"code": "logged_out", "message": str(error)}}
        except (KeyError, TypeError) as error:
            return {"status": "failed", "error": {"code": "bad_article", "message": f"cannot be read: {error!r}"}}


def main():
    parser = argparse.ArgumentParser(description="A robot that fetches articles of http_bridge and publishes into a folder.")
    parser.add_argument("--account", action="append", required=True, metavar="ID", help="fetches for this account; repeatable")
    parser.add_argument("--folder", type=Path, required=True, help="where pages and memory are kept")
    parser.add_argument("--base-url", required=True, help="where the folder is served")
    parser.add_argument("--slow", type=float, default=0, metavar="SECONDS", help="work that long before each post")
    parser.add_argument("--slow-report", type=float, default=0, metavar="SECONDS", help="wait that long after each post")
    options = parser.parse_args()
    if missing := [name for name in ("PUBLISH_URL", "PUBLISH_API_KEY") if not os.environ.get(name)]:
        sys.exit(f"set {', '.join(missing)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    memory = Memory(options.folder / "robot.db")
    platform = Platform(options.folder, options.base_url)
    service = Service(os.environ["PUBLISH_URL"], os.environ["PUBLISH_API_KEY"])
    print("ready", flush=True)
    try:
        Robot(platform, memory, service, options.slow, options.slow_report).run(options.account)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
