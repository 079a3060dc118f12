// A receiver of callbacks, with the Standard Webhooks library for JavaScript; where PUBLIC_KEYS_URL is set, with the keys from
// there as they were at its start and Node's own ed25519, since that library knows shared secrets only.
//
// Answers 500 to the first two tries of an event and 204 from then on; writes each try to standard output.

import { createPublicKey, verify } from "node:crypto";
import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const webhook = process.env.PUBLIC_KEYS_URL
  ? await withPublicKeys(process.env.PUBLIC_KEYS_URL)
  : new Webhook(process.env.PUBLISH_SIGNING_SECRET);
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

async function withPublicKeys(url) {
  const { keys } = await (await fetch(url)).json();
  const known = keys.map((jwk) => createPublicKey({ key: jwk, format: "jwk" }));
  // Standard Webhooks: the public key as text is that of the key set.
  for (const { x, public_key } of keys) {
    if (public_key !== "whpk_" + Buffer.from(x, "base64url").toString("base64")) throw new Error("two keys under one name");
  }
  return {
    verify(body, headers) {
      const message = Buffer.from(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`);
      const given = headers["webhook-signature"].split(" ").filter((one) => one.startsWith("v1a,"));
      const signatures = given.map((one) => Buffer.from(one.slice(4), "base64"));
      if (!known.some((key) => signatures.some((one) => verify(null, message, key, one)))) {
        throw new Error("no signature by a key that is known");
      }
      return JSON.parse(body);
    },
  };
}

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
