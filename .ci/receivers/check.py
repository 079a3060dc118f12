"""Publishes an article for each receiver whose output is named, and checks what it and the service say of it.

OUTPUT=verified and OUTPUT=refused check only whether it verifies another callback.
"""

import base64
import json
import os
import sys
import time
import urllib.request
from pathlib import Path

URL = os.environ["PUBLISH_URL"]
WITHIN_SECONDS = 30


def call(path: str, body: dict | None = None) -> bytes:
    request = urllib.request.Request(URL + path, data=json.dumps(body).encode() if body else None)
    request.add_header("authorization", f"Bearer {os.environ['PUBLISH_API_KEY']}")
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()


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


def lines(output: Path) -> list[dict]:
    return [json.loads(line) for line in output.read_text().splitlines(keepends=True) if line.endswith("\n")]


def check(name: str, output: Path):
    port = wait_for("receiver", lambda: lines(output))[0]["listening"]
    metadata = {"text": "é 漢 \u2028 🙂 </script>", "number": 1.50}
    article = {
        "external_id": f"für-{name}",
        "group_code": "demo",
        "title": "Verified by others",
        "content_html": "<p>é</p>",
        "callback_url": f"http://127.0.0.1:{port}/hook",
        "metadata": metadata,
    }
    expect("created", json.loads(call("/publish", article))["created"], True)
    tries = wait_for("three tries", lambda: len(lines(output)) > 3 and lines(output)[1:])
    expect("verified", [one["verified"] for one in tries], [True] * 3)
    expect("other bytes refused", [one["refuses_other_bytes"] for one in tries], [True] * 3)
    expect("answers", [one["status"] for one in tries], [500, 500, 204])
    expect("different bodies", len({one["body"] for one in tries}), 1)
    expect("different ids", len({one["headers"]["webhook-id"] for one in tries}), 1)
    stamps = [int(one["headers"]["webhook-timestamp"]) for one in tries]
    expect("timestamps in order", stamps, sorted(stamps))
    # A second lies between the tries (± 20 %), so the last cannot have the first one's time; each time has a signature.
    expect("a fresh timestamp", stamps[-1] > stamps[0], True)
    signatures = {one["headers"]["webhook-timestamp"]: one["headers"]["webhook-signature"] for one in tries}
    expect("fresh signatures", len(set(signatures.values())), len(set(stamps)))

    body = base64.b64decode(tries[0]["body"])
    event = json.loads(body)
    expect("type", event["type"], "publication.success")
    expect("external_id", event["external_id"], article["external_id"])
    expect("metadata", event["metadata"], metadata)
    expect("event_id", event["event_id"], tries[0]["headers"]["webhook-id"])

    def delivered():
        answer = call(f"/callbacks/{event['event_id']}")
        return answer if json.loads(answer)["status"] != "pending" else None

    answer = wait_for("delivery", delivered)
    callback = json.loads(answer)
    expect("status", callback["status"], "delivered")
    expect("tries", [one["http_status"] for one in callback["tries"]], [500, 500, 204])
    expect("the same bytes in GET /callbacks", body in answer, True)
    time.sleep(2)
    expect("tries after the delivery", len(lines(output)) - 1, 3)
    print(f"  {name}: event {event['event_id']} verified on each of 3 tries (500, 500, 204), {len(body)} equal bytes")


def check_once(name: str, output: Path, wanted: str):
    port = wait_for("receiver", lambda: lines(output))[0]["listening"]
    before = len(lines(output))
    article = {
        "external_id": f"{name}-{before}",
        "group_code": "demo",
        "title": "After a rotation",
        "content_html": "<p>é</p>",
        "callback_url": f"http://127.0.0.1:{port}/hook",
    }
    call("/publish", article)
    # All tries, so that none of them comes while the next is looked for; the last is a fourth one where each is refused.
    count = 3 if wanted == "verified" else 4
    tries = wait_for(f"{count} tries", lambda: len(lines(output)) >= before + count and lines(output)[before:])
    expect(f"{name} verified", [one["verified"] for one in tries], [wanted == "verified"] * count)
    print(f"  {name}: {wanted}")


for argument in sys.argv[1:]:
    path, _, wanted = argument.partition("=")
    if wanted:
        check_once(Path(path).name, Path(path), wanted)
    else:
        check(Path(path).name, Path(path))
