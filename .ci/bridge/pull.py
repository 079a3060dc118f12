"""Runs the example robot, kills it before it posts and before it reports, and counts what was posted.

Arguments: the robot's program, its folder.
"""

import atexit
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

URL = os.environ["PUBLISH_URL"]
WITHIN_SECONDS = 60

program, folder = sys.argv[1], Path(sys.argv[2])
folder.mkdir(parents=True)


def ok(method: str, path: str, body: dict | None = None) -> dict:
    request = urllib.request.Request(URL + path, data=json.dumps(body).encode() if body is not None else None, method=method)
    request.add_header("authorization", f"Bearer {os.environ['PUBLISH_API_KEY']}")
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        sys.exit(f"FAULT: {method} {path}: {error.code} {error.read().decode()}")


def wait_for(what: str, look):
    end = time.monotonic() + WITHIN_SECONDS
    while not (found := look()):
        if time.monotonic() > end:
            sys.exit(f"FAULT: no {what} within {WITHIN_SECONDS} s")
        time.sleep(0.05)
    return found


def expect(what: str, found, wanted):
    if found != wanted:
        sys.exit(f"FAULT: {what}: found {found!r}, not {wanted!r}")


def start(*arguments: str) -> subprocess.Popen:
    command = [sys.executable, program, "--account", "fetched", "--folder", str(folder), "--base-url", "https://example.org"]
    with open(folder / "robot.out", "ab") as out:
        robot = subprocess.Popen([*command, *arguments], stdout=out, stderr=out)
    # Also when something is at fault; a second time it does nothing.
    atexit.register(kill, robot)
    return robot


def said() -> str:
    return (folder / "robot.out").read_text(encoding="utf-8")


def kill(robot: subprocess.Popen):
    robot.kill()
    robot.wait()


def publish(external_id: str):
    article = {"external_id": external_id, "group_code": "fetched", "title": external_id, "content_html": f"<p>{external_id}</p>"}
    ok("POST", "/publish", article)


def task(external_id: str) -> dict:
    return ok("GET", f"/tasks/{external_id}")


def ended(external_id: str, wanted: str):
    wait_for(f"{external_id} that is {wanted}", lambda: task(external_id)["status"] == wanted)


def posts() -> list:
    log = folder / "posted.log"
    return log.read_text(encoding="utf-8").split() if log.exists() else []


ok("PUT", "/accounts/http_bridge/fetched", {"settings": {}})
ok("PUT", "/groups/fetched", {"accounts": [{"platform": "http_bridge", "account_id": "fetched"}]})

# Nobody is there yet: it waits.
publish("waits")
robot = start()
ended("waits", "success")
kill(robot)

# Killed after it has fetched and before it posts; then between posting and reporting; then it goes on.
publish("killed")
robot = start("--slow", "3600")
wait_for("article that was fetched", lambda: "killed: fetched" in said())
kill(robot)
expect("posts before", len(posts()), 1)
robot = start("--slow-report", "3600")
wait_for("article that was posted", lambda: "killed: posted" in said())
kill(robot)
expect("posts", len(posts()), 2)
expect("state between posting and reporting", task("killed")["publications"][0]["phase"], "confirming")
robot = start()
ended("killed", "success")
one = task("killed")["publications"][0]
expect("handings out", (one["round"], one["attempts"]), (1, 1))

# A login that expires, and is renewed.
(folder / "logged-out").touch()
publish("expired")
ended("expired", "login_expired")
(folder / "logged-out").unlink()
expect("resumed", ok("PUT", "/accounts/http_bridge/fetched", {"settings": {}, "credentials": {}})["resumed"], 1)
ended("expired", "success")
kill(robot)

expect("posts, each once", (len(posts()), len(set(posts()))), (3, 3))
tries = [one for one in ok("GET", "/tasks/expired/history")["entries"] if one["kind"] == "try"]
expect("tries", [(one["phase"], one["outcome"]) for one in tries], [("publish", "login_expired"), ("publish", "done")])
print("fetched by a robot that was killed twice, and logged out once: each article once")
