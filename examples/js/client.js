#!/usr/bin/env node
// A little client of push notification servers, by a Waku node that serves filter and light push.
//
//   node client.js register --account FILE --server 0x04… --device-token TOKEN [--apn-topic TOPIC]
//   node client.js query USER
//   node client.js send USER --account FILE --chat NAME --text TEXT [--kind MENTION|CONTACT_REQUEST|…]
//   node client.js test-push --account FILE: a push to this account's own device, and which answers came
//
// --node is the URL of the node's REST API, or its WebSocket address for js-waku (/ip4/…/tcp/…/ws/p2p/…); --shard NAME
// says on which shard. --account FILE keeps the chat key and what was registered, and is made if it is not there. The
// result is printed as JSON. It exits with 1 if nobody answered, or with an error.
import { randomBytes, randomUUID } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import * as wire from "./protocol.js";
import { RestNode } from "./rest.js";

const PATIENCE = 10_000; // milliseconds
const { PUSH_NOTIFICATION_REGISTRATION, PUSH_NOTIFICATION_QUERY, PUSH_NOTIFICATION_REQUEST } = wire.Types;

// Answers of one type to a key, as long as patience lasts. The others on the topic are somebody else's: 5,000 keys
// share one; and anybody can send anything there.
async function* answers(node, key, type, name) {
  const topic = answerTopic(key);
  for (const end = Date.now() + PATIENCE; Date.now() < end; await sleep(100)) {
    for (const payload of await node.read(topic)) {
      let signer, answer;
      try {
        const opened = await wire.open(key, topic, payload);
        if (opened?.type !== type) continue;
        [signer, answer] = [opened.signer, wire.decode(name, opened.inner)];
      } catch {
        continue;
      }
      yield { signer, answer };
    }
  }
}

const answerTopic = (key) => wire.contentTopic(wire.partitionedTopic(wire.publicOf(key)));
const keep = (file, account) => writeFileSync(file, JSON.stringify(account), { mode: 0o600 });

function accountIn(file) {
  if (!existsSync(file)) {
    const key = wire.newKey().toString("hex");
    keep(file, { key, installationId: randomUUID(), accessToken: randomUUID(), version: 0 });
  }
  return JSON.parse(readFileSync(file, "utf8"));
}

async function register(node, { account: file, server: name, "device-token": deviceToken, "apn-topic": apnTopic }) {
  const mine = accountIn(file);
  const key = Buffer.from(mine.key, "hex");
  const server = wire.parseKey(name);
  mine.version += 1;
  keep(file, mine); // first: no version may come twice
  const registration = wire.encode("PushNotificationRegistration", {
    tokenType: apnTopic ? "APN_TOKEN" : "FIREBASE_TOKEN",
    deviceToken,
    installationId: mine.installationId,
    accessToken: mine.accessToken,
    enabled: true,
    version: mine.version,
    grant: wire.grant(key, server, mine.accessToken),
    apnTopic,
  });
  const sealed = wire.seal(wire.shared(key, server), registration);
  await node.subscribe(answerTopic(key));
  await node.publish(await wire.sealTo(server, wire.wrap(PUSH_NOTIFICATION_REGISTRATION, sealed, key), key));
  const type = wire.Types.PUSH_NOTIFICATION_REGISTRATION_RESPONSE;
  for await (const { signer, answer } of answers(node, key, type, "PushNotificationRegistrationResponse")) {
    // Only the server's answer to this very registration counts.
    if (!signer.equals(server) || !answer.requestId.equals(wire.hash64(sealed))) continue;
    const publicKey = `0x${wire.publicOf(key).toString("hex")}`;
    return { publicKey, version: mine.version, error: answer.success ? null : answer.error };
  }
  return null;
}

// Asked with a key of its own, so that nobody learns who asks.
async function query(node, user) {
  const key = wire.newKey();
  const inner = wire.encode("PushNotificationQuery", { publicKeys: [wire.keyHash(user)] });
  const metadata = wire.wrap(PUSH_NOTIFICATION_QUERY, inner, key);
  await node.subscribe(answerTopic(key));
  await node.publish(await wire.sealOn(wire.queryTopic(user), metadata, key));
  const type = wire.Types.PUSH_NOTIFICATION_QUERY_RESPONSE;
  for await (const { signer: server, answer } of answers(node, key, type, "PushNotificationQueryResponse")) {
    if (!answer.messageId.equals(wire.messageId(wire.publicOf(key), metadata))) continue;
    const devices = answer.info.filter(
      // The grant shows that the user wants this server, and that the access token is theirs.
      (info) =>
        info.publicKey.equals(wire.keyHash(user)) &&
        info.accessToken &&
        wire.isGranted(info.grant, user, server, info.accessToken),
    );
    if (!devices.length) continue; // somebody who knows whom we asked for made it up
    return devices.map(({ installationId, accessToken, version }) => ({ installationId, accessToken, version, server }));
  }
  return null;
}

async function send(node, user, { account: file, chat, text, kind }) {
  const [sender, began] = [wire.publicOf(Buffer.from(accountIn(file).key, "hex")), Date.now()];
  const devices = await query(node, (user ??= sender));
  console.error(devices ? `query answered after ${Date.now() - began} ms` : "query not answered: no server knows a device");
  if (!devices) return null;
  const key = wire.newKey();
  const [{ server }] = devices;
  const id = randomBytes(32);
  const requests = devices.map(({ installationId, accessToken }) => ({
    accessToken,
    chatId: wire.chatId(chat),
    publicKey: wire.keyHash(user),
    installationId,
    message: Buffer.from(text), // a messenger encrypts it: the server passes it on as it is
    type: kind,
    author: wire.author(sender),
  }));
  const inner = wire.encode("PushNotificationRequest", { requests, messageId: id });
  const metadata = wire.wrap(PUSH_NOTIFICATION_REQUEST, inner, key);
  await node.subscribe(answerTopic(key));
  await node.publish(await wire.sealTo(server, metadata, key));
  const type = wire.Types.PUSH_NOTIFICATION_RESPONSE;
  for await (const { signer, answer } of answers(node, key, type, "PushNotificationResponse")) {
    if (!signer.equals(server) || !answer.messageId.equals(id)) continue;
    console.error(`request answered after ${Date.now() - began} ms: look at the phone`);
    return answer.reports.map(({ installationId, success, error }) => ({ installationId, error: success ? null : error }));
  }
  console.error("request not answered: the server knows the device, and says nothing");
  return null;
}

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    account: { type: "string", default: "account.json" },
    node: { type: "string", default: "http://127.0.0.1:8645" },
    shard: { type: "string", default: "/waku/2/rs/16/32" },
    server: { type: "string" },
    "device-token": { type: "string" },
    "apn-topic": { type: "string" },
    chat: { type: "string" },
    text: { type: "string" },
    kind: { type: "string", default: "MESSAGE" }, // of wire.md: PushNotificationType
  },
});
const node = values.node.startsWith("/")
  ? await (await import("./sdk.js")).SdkNode.connect(values.node, values.shard)
  : new RestNode(values.node, values.shard);
const hex = (_, value) => (value?.type === "Buffer" ? `0x${Buffer.from(value).toString("hex")}` : value);
const [command, user] = positionals;
let result;
if (command === "register") result = await register(node, values);
else if (command === "query") result = await query(node, wire.parseKey(user));
else if (command === "send") result = await send(node, wire.parseKey(user), values);
else if (command === "test-push") result = await send(node, null, { ...values, chat: "test", text: "test" });
else throw new Error("register, query, send or test-push: see the first lines of this file");
console.log(JSON.stringify(result, hex));
await node.close();
process.exit(result && ![result].flat().some((each) => each.error) ? 0 : 1);
