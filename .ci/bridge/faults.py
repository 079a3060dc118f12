"""A proxy before a bridge that loses the first answer to an article, in the way that its external_id names.

The request always reaches the bridge first: what is lost is only the answer. Run with the bridge's address.
"""

import json
import socket
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HANG_SECONDS = 30

bridge = sys.argv[1]
lock = threading.Lock()
seen = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        external_id = json.loads(body)["external_id"]
        with lock:
            seen[external_id] = seen.get(external_id, 0) + 1
            first = seen[external_id] == 1
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        request = urllib.request.Request(bridge, data=body, headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            status, told = answer.status, answer.read()
        if first and external_id.startswith("cut"):
            # Read, published, and gone: the connection is reset without a byte of an answer.
            linger = (1).to_bytes(4, sys.byteorder) + (0).to_bytes(4, sys.byteorder)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
            return
        if first and external_id.startswith("500"):
            status, told = 500, b"out of order"
        if first and external_id.startswith("hang"):
            time.sleep(HANG_SECONDS)
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("content-length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def do_GET(self):
        told = json.dumps(seen).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(f"listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
