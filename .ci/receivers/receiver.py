"""A receiver of callbacks, with the Standard Webhooks library for Python.

Answers 500 to the first two tries of an event and 204 from then on; writes each try to standard output.
"""

import base64
import json
import os
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["PUBLISH_SIGNING_SECRET"])
tries = Counter()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = dict(self.headers)
        try:
            event = webhook.verify(body, headers)
        except WebhookVerificationError as error:
            print(json.dumps({"verified": False, "error": str(error)}), flush=True)
            return self.answer(401)

        tries[event["event_id"]] += 1
        status = 500 if tries[event["event_id"]] <= 2 else 204
        print(
            json.dumps(
                {
                    "verified": True,
                    "refuses_other_bytes": refuses(body + b" ", headers),
                    "headers": {name: self.headers[name] for name in ("webhook-id", "webhook-timestamp", "webhook-signature")},
                    "body": base64.b64encode(body).decode(),
                    "status": status,
                }
            ),
            flush=True,
        )
        self.answer(status)

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def refuses(body, headers):
    try:
        webhook.verify(body, headers)
    except WebhookVerificationError:
        return True
    return False


server = HTTPServer(("127.0.0.1", 0), Receiver)
print(json.dumps({"listening": server.server_port}), flush=True)
server.serve_forever()
