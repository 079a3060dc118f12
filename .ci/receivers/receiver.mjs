// A receiver of callbacks, with the Standard Webhooks library for JavaScript.
//
// Answers 500 to the first two tries of an event and 204 from then on; writes each try to standard output.

import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const webhook = new Webhook(process.env.PUBLISH_SIGNING_SECRET);
const tries = new Map();

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  let event;
  try {
    event = webhook.verify(body.toString(), request.headers);
  } catch (error) {
    print({ verified: false, error: error.message });
    return response.writeHead(401).end();
  }

  const count = (tries.get(event.event_id) ?? 0) + 1;
  tries.set(event.event_id, count);
  const status = count <= 2 ? 500 : 204;
  print({
    verified: true,
    refuses_other_bytes: refuses(body.toString() + " ", request.headers),
    headers: Object.fromEntries(
      ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) => [name, request.headers[name]]),
    ),
    body: body.toString("base64"),
    status,
  });
  response.writeHead(status).end();
});

function refuses(body, headers) {
  try {
    webhook.verify(body, headers);
    return false;
  } catch {
    return true;
  }
}

function print(line) {
  console.log(JSON.stringify(line));
}

server.listen(0, "127.0.0.1", () => print({ listening: server.address().port }));
