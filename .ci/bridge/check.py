"""Publishes on the example bridges, loses their answers, and counts what is in their folders."""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

URL = os.environ["PUBLISH_URL"]
WITHIN_SECONDS = 60

faulty, now_folder, later, later_folder = sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])


def call(method: str, path: str, body: dict | None = None) -> tuple[int, dict]:
    request = urllib.request.Request(URL + path, data=json.dumps(body).encode() if body is not None else None, method=method)
    request.add_header("authorization", f"Bearer {os.environ['PUBLISH_API_KEY']}")
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def ok(method: str, path: str, body: dict | None = None) -> dict:
    status, answer = call(method, path, body)
    if status != 200:
        sys.exit(f"FAULT: {method} {path}: {status} {answer}")
    return answer


def wait_for(what: str, look):
    end = time.monotonic() + WITHIN_SECONDS
    while not (found := look()):
        if time.monotonic() > end:
            sys.exit(f"FAULT: no {what} within {WITHIN_SECONDS} s")
        time.sleep(0.1)
    return found


def expect(what: str, found, wanted):
    if found != wanted:
        sys.exit(f"FAULT: {what}: found {found!r}, not {wanted!r}")


def account(name: str, endpoint: str) -> dict:
    body = {"settings": {"endpoint": endpoint}, "credentials": {"secret": os.environ["BRIDGE_SECRET"]}}
    return ok("PUT", f"/accounts/http_bridge/{name}", body)


def publish(external_id: str, group: str):
    article = {"external_id": external_id, "group_code": group, "title": external_id, "content_html": f"<p>{external_id}</p>"}
    ok("POST", "/publish", article)


def publications(external_id: str) -> dict:
    return {f"{one['platform']}/{one['account_id']}": one for one in ok("GET", f"/tasks/{external_id}")["publications"]}


def status(external_id: str) -> str:
    return ok("GET", f"/tasks/{external_id}")["status"]


def ended(external_id: str, wanted: str):
    wait_for(f"{external_id} that is {wanted}", lambda: status(external_id) == wanted)


def pages(folder: Path) -> int:
    return len(list(folder.glob("*.html")))


account("now", faulty)
account("later", later)
ok("PUT", "/accounts/static_site/one", {"settings": {"site": "one"}})
ok("PUT", "/accounts/static_site/two", {"settings": {"site": "two"}})
ok("PUT", "/groups/now", {"accounts": [{"platform": "http_bridge", "account_id": "now"}]})
ok("PUT", "/groups/later", {"accounts": [{"platform": "http_bridge", "account_id": "later"}]})
three = [("static_site", "one"), ("http_bridge", "now"), ("static_site", "two")]
ok("PUT", "/groups/three", {"accounts": [{"platform": platform, "account_id": name} for platform, name in three]})

# Answers that are lost after the article was published.
lost = ["plain", "cut-1", "500-1", "hang-1"]
for external_id in lost:
    publish(external_id, "now")
for external_id in lost:
    ended(external_id, "success")
expect("pages", pages(now_folder), len(lost))
with urllib.request.urlopen(faulty, timeout=10) as answer:
    seen = json.loads(answer.read())
expect("requests for an article whose answer came", seen["plain"], 1)
for external_id in lost[1:]:
    if seen[external_id] < 2:
        sys.exit(f"FAULT: {external_id} was not asked again")

# 202, and the result by a call.
publish("later-1", "later")
ended("later-1", "success")
expect("pages of the later bridge", pages(later_folder), 1)

history = ok("GET", "/tasks/later-1/history")["entries"]
expect("tries", sum(one["kind"] == "try" for one in history), 1)

# A login that expires on one account of three, and is renewed.
(now_folder / "logged-out").touch()
publish("three-1", "three")
ended("three-1", "login_expired")
publish("three-2", "three")
ended("three-2", "login_expired")
with urllib.request.urlopen(faulty, timeout=10) as answer:
    seen = json.loads(answer.read())
expect("requests for what was due while the login was known to be expired", seen.get("three-2", 0), 0)
expect("the login", ok("GET", "/accounts/http_bridge/now")["login_state"], "login_expired")
(now_folder / "logged-out").unlink()
renewed = account("now", faulty)
expect("resumed and left", (renewed["resumed"], renewed["left"]), (2, 0))
for external_id in ["three-1", "three-2"]:
    ended(external_id, "success")
    rounds = {name: (one["status"], one["round"], one["attempts"]) for name, one in publications(external_id).items()}
    expect(
        f"rounds and tries of {external_id}",
        rounds,
        {
            "static_site/one": ("success", 1, 1),
            "static_site/two": ("success", 1, 1),
            "http_bridge/now": ("success", 2, 2 if external_id == "three-1" else 1),
        },
    )
expect("pages", pages(now_folder), len(lost) + 2)
print(f"{len(lost)} answers lost, one late, a login renewed: each article once")
