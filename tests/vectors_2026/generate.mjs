// Writes the conversations of this folder, by the protocol of examples/js and the rules of status-go of 2026 (README.md):
//
//   node generate.mjs DIR          those that are in the repository
//   node generate.mjs DIR sizes    those of large registrations, which are not: they have some megabytes
//
// Nothing of wakupush takes part but the .proto files. Keys, ids, nonces and paddings follow from names and counters, so
// the files are the same each time.
import assert from "node:assert/strict";
import crypto, { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import * as wire from "../../examples/js/protocol.js";

const SHARD = "/waku/2/rs/16/32";
const START = 1_795_000_000n * 1_000_000_000n; // nanoseconds
const SEGMENT_BYTES = 786_432; // more is sent in segments
// The public test key of status-go's functional test.
const SERVER = "3e64442a0ba8a59b4d2dc7385cd4533a10e86dd644e7ec549cb92503787f5282";
const [IOS, ANDROID] = [1, 2];
const IOS_FIELDS = { content_available: true, sound: "default", priority: "high", push_type: "alert" };
const MENTION = ["New mention or reply in Communities", "status-app://ac"];
const CONTENT = {
  1: ["New message in Messenger", "status-app://chats"],
  2: MENTION,
  3: ["Someone requested to join a community you are an admin of", "status-app://ac"],
  4: ["Someone sent you a contact request", "status-app://contact-requests"],
};
const ERRORS = { WRONG_TOKEN: 1, NOT_REGISTERED: 3 };

const hex = (bytes) => Buffer.from(bytes).toString("hex");
const derive = (text) => createHash("sha256").update(`wakupush vectors of 2026: ${text}`).digest();
const uuid = (text) => hex(derive(text)).replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/, "$1-$2-4$3-8$4-$5");
let draws = 0;
// js-waku draws its ephemeral keys, nonces and paddings here.
crypto.randomBytes = (length) => {
  const blocks = Array.from({ length: Math.ceil(length / 32) }, () => derive(`draw ${(draws += 1)}`));
  return Buffer.concat(blocks).subarray(0, length);
};
syncBuiltinESMExports();

// The bytes of a message out of its fields as the files list them: bytes as hex, proto3's defaults not on the wire.
const TEXTS = ["access_token", "apn_topic", "device_token", "installation_id"];
const camel = (text) => text.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
function written(name, value) {
  if (Array.isArray(value)) return value.map((each) => written(name, each));
  if (typeof value === "string") return TEXTS.includes(name) ? value : Buffer.from(value, "hex");
  if (typeof value !== "object") return value;
  const isSet = ([, each]) => each !== false && each !== "" && each !== 0;
  return Object.fromEntries(Object.entries(value).filter(isSet).map(([k, v]) => [camel(k), written(k, v)]));
}
const encode = (name, fields) => wire.encode(name, written("", fields));
const MESSAGES = {
  PUSH_NOTIFICATION_REGISTRATION: "PushNotificationRegistration",
  PUSH_NOTIFICATION_REGISTRATION_RESPONSE: "PushNotificationRegistrationResponse",
  PUSH_NOTIFICATION_QUERY: "PushNotificationQuery",
  PUSH_NOTIFICATION_QUERY_RESPONSE: "PushNotificationQueryResponse",
  PUSH_NOTIFICATION_REQUEST: "PushNotificationRequest",
  PUSH_NOTIFICATION_RESPONSE: "PushNotificationResponse",
};

const keyed = (name, secret) => ({ name, secret, publicKey: wire.publicOf(secret) });

// A SegmentMessage, written by hand: field 7 is not in our .proto of 2024.
const varint = (value) => (value < 128 ? [value] : [(value & 127) | 128, ...varint(value >>> 7)]);
const bytesField = (number, bytes) => Buffer.concat([Buffer.from([(number << 3) | 2, ...varint(bytes.length)]), bytes]);
const numberField = (number, value) => Buffer.from(value ? [number << 3, ...varint(value)] : []);
function segmentsOf(data, size, hasLength) {
  const count = Math.ceil(data.length / size);
  return Array.from({ length: count }, (_, index) =>
    Buffer.concat([
      bytesField(1, wire.keccak(data)),
      numberField(2, index),
      numberField(3, count),
      bytesField(4, data.subarray(index * size, (index + 1) * size)),
      hasLength ? numberField(7, data.length) : Buffer.alloc(0),
    ]),
  );
}

class Conversation {
  constructor(title, about) {
    this.title = title;
    this.about = about;
    this.server = keyed("server", Buffer.from(SERVER, "hex"));
    this.people = [this.server];
    this.ephemeral = {}; // secrets by name of the owner
    this.rows = new Map();
    this.steps = [];
    this.messages = 0;
  }

  person(name) {
    const person = keyed(name, derive(`${this.title}, key of ${name}`));
    this.people.push(person);
    this.ephemeral[name] = [];
    return person;
  }

  // A device and what it registers; each registration has the next version.
  device(owner, name, kind, fields = {}) {
    const installation_id = uuid(`${this.title}, ${owner.name}'s ${name}`);
    const topic = kind === IOS ? "app.status.mobile" : "";
    return { owner, kind, version: 0, token: `${owner.name}-${name}`, topic, installation_id, fields };
  }

  ephemeralKey(owner) {
    const secrets = this.ephemeral[owner.name];
    const key = keyed("ephemeral", derive(`${this.title}, key ${secrets.length} of ${owner.name}`));
    secrets.push(key.secret);
    return key;
  }

  step(name, what, send, replies, notifications = []) {
    this.steps.push({
      name,
      what,
      compare: "exact",
      spec_expect: null,
      spec_note: "",
      deliver_times: 1,
      send,
      replies,
      gorush_posts: notifications.length
        ? [{ method: "POST", path: "//api/push", json: { notifications }, answered_status: 200 }]
        : [],
      reference_log: [],
      server_rows_after: [...this.rows.values()].map((row) => ({ ...row })),
    });
  }

  // One WakuMessage with its layers, as far as a comparison reads them.
  async message(from, to, topic_name, data, version, application) {
    const sealed = to
      ? await wire.sealTo(to.publicKey, data, from.secret, topic_name)
      : await wire.sealOn(topic_name, data, from.secret);
    this.messages += 1;
    const recipient = to ? { recipient: to.name, recipient_public_key: hex(to.publicKey) } : {};
    return {
      from: from.name,
      topic_name,
      application,
      payload_v1: { ...recipient, signer: from.name, signer_public_key: hex(from.publicKey) },
      waku_message: {
        pubsub_topic: SHARD,
        payload: Buffer.from(sealed.payload).toString("base64"),
        content_topic: sealed.contentTopic,
        version,
        timestamp: Number(START) + this.messages * 1_000_000_000,
        ephemeral: false,
        meta: "",
      },
    };
  }

  // A signed message and what the file says of it.
  signed(type_name, inner, signer, contents) {
    const type = wire.Types[type_name];
    const signature = { signer: signer.name, signer_public_key: hex(signer.publicKey) };
    const application = { type, type_name, inner: hex(inner), ...signature, ...contents };
    return { metadata: wire.wrap(type, inner, signer.secret), application };
  }

  async reply(type_name, fields, to) {
    const inner = encode(MESSAGES[type_name], fields);
    const { metadata, application } = this.signed(type_name, inner, this.server, { fields });
    return this.message(this.server, to, wire.partitionedTopic(to.publicKey), metadata, 1, application);
  }

  // `segments` are bytes of a part; `order` are numbers of the parts as they are sent.
  async register(name, device, { version, segments, hasLength = true, order, fields = {}, what = "a registration" }) {
    const { owner, kind } = device;
    Object.assign(device.fields, fields);
    device.version += 1;
    const serial = `${device.token}, version ${device.version}`;
    device.access_token = uuid(`${this.title}, access token of ${serial}`);
    device.device_token = `${device.token}-${device.version}`;
    device.grant = hex(wire.grant(owner.secret, this.server.publicKey, device.access_token));
    const registration = {
      token_type: kind,
      device_token: device.device_token,
      installation_id: device.installation_id,
      access_token: device.access_token,
      enabled: true,
      version: device.version,
      allowed_key_list: [],
      blocked_chat_list: [],
      unregister: false,
      grant: device.grant,
      allow_from_contacts_only: false,
      apn_topic: device.topic,
      block_mentions: false,
      allowed_mentions_chat_list: [],
      muted_chat_list: [],
      ...device.fields,
    };
    const nonce = derive(`${this.title}, nonce of ${serial}`).subarray(0, 12);
    const plaintext = encode("PushNotificationRegistration", registration);
    const inner = wire.seal(wire.shared(owner.secret, this.server.publicKey), plaintext, nonce);
    const contents = { registration: { fields: registration } };
    const { metadata, application } = this.signed("PUSH_NOTIFICATION_REGISTRATION", inner, owner, contents);
    const topic = `contact-discovery-${hex(this.server.publicKey)}`;
    const send = await this.parts(owner, topic, metadata, { version, segments, hasLength, order, application });
    const response = { success: true, error: 0, request_id: hex(wire.hash64(inner)) };
    const reply = await this.reply("PUSH_NOTIFICATION_REGISTRATION_RESPONSE", response, owner);
    this.rows.set(device.installation_id, {
      public_key_hash: hex(wire.keyHash(owner.publicKey)),
      installation_id: device.installation_id,
      registered: true,
      version: device.version,
    });
    this.step(name, `${what}, in WakuMessages of version ${version}`, send, [reply]);
  }

  async parts(from, topic, metadata, { version, segments, hasLength, order, application }) {
    if (!segments) return [await this.message(from, this.server, topic, metadata, version, application)];
    const parts = segmentsOf(metadata, segments, hasLength);
    const send = [];
    for (const index of order ?? parts.keys()) {
      const segment = { index, segments_count: parts.length, original_payload_length: hasLength ? metadata.length : 0 };
      send.push(await this.message(from, this.server, topic, parts[index], version, { segment }));
    }
    return send;
  }

  // What comes of each item is its `becomes`: "pushed", "filtered", or the error of its report.
  async request(name, from, items, { version, segments, what }) {
    const key = this.ephemeralKey(from);
    const message_id = hex(wire.keccak(Buffer.from(`${this.title}, ${name}`)));
    const requests = items.map(({ to, type, chat = "a chat", author = from, accessToken = to.access_token }) => ({
      access_token: accessToken,
      chat_id: hex(wire.chatId(chat)),
      public_key: hex(wire.keyHash(to.owner.publicKey)),
      installation_id: to.installation_id,
      message: "",
      type,
      author: hex(wire.author(author.publicKey)),
    }));
    const becomes = items.map((item) => item.becomes ?? "pushed");
    const reports = requests.map(({ public_key, installation_id }, index) => {
      const error = ERRORS[becomes[index]] ?? 0;
      return { success: !error, error, public_key, installation_id };
    });
    const notifications = items
      .map(({ to }, index) => this.notification(to, requests[index]))
      .filter((_, index) => becomes[index] === "pushed");
    const fields = { requests, message_id };
    const inner = encode("PushNotificationRequest", fields);
    const { metadata, application } = this.signed("PUSH_NOTIFICATION_REQUEST", inner, key, { fields });
    const topic = wire.partitionedTopic(this.server.publicKey);
    const send = await this.parts(from, topic, metadata, { version, segments, hasLength: true, application });
    const reply = await this.reply("PUSH_NOTIFICATION_RESPONSE", { message_id, reports }, key);
    this.step(name, `${what}, in WakuMessages of version ${version}`, send, [reply], notifications);
  }

  notification(device, { type, chat_id, public_key }) {
    const [message, deepLink] = CONTENT[type] ?? MENTION;
    const isIos = device.kind === IOS;
    return {
      tokens: [device.device_token],
      platform: device.kind,
      message,
      topic: device.topic,
      ...(isIos ? IOS_FIELDS : {}),
      data: {
        encryptedMessage: "0x",
        chatId: `0x${chat_id}`,
        publicKey: `0x${public_key}`,
        ...(isIos ? { deepLink } : {}),
      },
    };
  }

  // The answer names these devices of the user.
  async query(name, from, user, devices, { version, what }) {
    const key = this.ephemeralKey(from);
    const public_key = hex(wire.keyHash(user.publicKey));
    const fields = { public_keys: [public_key] };
    const inner = encode("PushNotificationQuery", fields);
    const { metadata, application } = this.signed("PUSH_NOTIFICATION_QUERY", inner, key, { fields });
    const topic = wire.queryTopic(user.publicKey);
    const send = [await this.message(from, null, topic, metadata, version, application)];
    const info = devices.map(({ access_token, installation_id, grant, version, fields: registered }) => ({
      access_token: registered.allow_from_contacts_only ? "" : access_token,
      installation_id,
      public_key,
      allowed_key_list: registered.allow_from_contacts_only ? registered.allowed_key_list : [],
      grant,
      version,
      server_public_key: "",
    }));
    const message_id = hex(wire.messageId(key.publicKey, metadata));
    const response = { info, message_id, success: devices.length > 0 };
    const reply = await this.reply("PUSH_NOTIFICATION_QUERY_RESPONSE", response, key);
    this.step(name, `${what}, in a WakuMessage of version ${version}`, send, [reply]);
  }

  toJSON() {
    const keys = this.people.map(({ name, secret, publicKey }) => ({
      name,
      private_key: hex(secret),
      public_key: hex(publicKey),
      ephemeral_keys: (this.ephemeral[name] ?? []).map((each) => ({ private_key: hex(each) })),
    }));
    return { title: this.title, about: this.about, keys, steps: this.steps };
  }
}

// Every type on both platforms, and in both versions of a WakuMessage.
async function pushes() {
  const talk = new Conversation("pushes of 2026", "Types 1 to 5 on both platforms, and the filter of contact requests.");
  const [bob, friend, enemy] = ["bob", "friend", "enemy"].map((name) => talk.person(name));
  const phone = talk.device(bob, "iphone", IOS);
  const tablet = talk.device(bob, "android", ANDROID);
  // Mentions are pushed for the chats of this list alone.
  const mentions = { allowed_mentions_chat_list: [hex(wire.chatId("a chat"))] };
  await talk.register("register_ios", phone, { version: 0, fields: mentions });
  await talk.register("register_android", tablet, { version: 1, fields: mentions });
  for (const type of [1, 2, 3, 4, 5]) {
    for (const version of [0, 1]) {
      const items = [phone, tablet].map((to) => ({ to, type }));
      await talk.request(`type_${type}_version_${version}`, friend, items, { version, what: `type ${type} to both` });
    }
  }
  tablet.topic = "im.status.ethereum";
  await talk.register("register_android_with_topic", tablet, { version: 0, what: "a topic that Android needs not" });
  await talk.request("type_1_android_with_topic", friend, [{ to: tablet, type: 1 }], { version: 0, what: "a message" });
  const fields = {
    block_mentions: true,
    muted_chat_list: [hex(wire.chatId("muted"))],
    blocked_chat_list: [hex(wire.chatId("blocked")), hex(wire.author(enemy.publicKey))],
    allowed_mentions_chat_list: [hex(wire.chatId("allowed"))],
  };
  await talk.register("register_lists", phone, { version: 0, fields, what: "a registration with lists" });
  const to = phone;
  for (const [name, type, item] of [
    ["contact_request_blocked_mentions", 4, {}],
    ["contact_request_muted_chat", 4, { chat: "muted" }],
    ["contact_request_blocked_chat", 4, { chat: "blocked" }],
    ["contact_request_blocked_author", 4, { author: enemy, becomes: "filtered" }],
    ["message_muted_chat", 1, { chat: "muted", becomes: "filtered" }],
    ["mention_blocked_mentions", 2, { chat: "allowed", becomes: "filtered" }],
    ["join_blocked_author", 3, { author: enemy, becomes: "filtered" }],
  ]) {
    const version = talk.steps.length % 2;
    await talk.request(name, friend, [{ to, type, ...item }], { version, what: `type ${type} to a device with lists` });
  }
  return talk;
}

// What a client of 2026 does with access tokens: only WRONG_TOKEN makes it query again.
async function queries() {
  const talk = new Conversation("queries of 2026", "Queries in both versions of a WakuMessage, and stale access tokens.");
  const [alice, bob, carol, nobody] = ["alice", "bob", "carol", "nobody"].map((name) => talk.person(name));
  const phone = talk.device(alice, "iphone", IOS);
  const tablet = talk.device(alice, "android", ANDROID);
  await talk.register("register", phone, { version: 0 });
  await talk.query("first_query_version_0", bob, alice, [phone], { version: 0, what: "at once after a registration" });
  await talk.register("register_second_device", tablet, { version: 0 });
  await talk.query("query_version_1", bob, alice, [phone, tablet], { version: 1, what: "two devices" });
  const stale = phone.access_token;
  await talk.register("register_new_token", phone, { version: 1, what: "a new access token and device token" });
  const items = [{ to: phone, type: 4, accessToken: stale, becomes: "WRONG_TOKEN" }];
  await talk.request("stale_token", bob, items, { version: 0, what: "with the token of before" });
  await talk.query("query_after_wrong_token", bob, alice, [phone, tablet], { version: 0, what: "the new token" });
  await talk.request("new_token", bob, [{ to: phone, type: 4 }], { version: 0, what: "with the new token" });
  const mixed = [
    { to: tablet, type: 1 },
    { to: { ...phone, installation_id: uuid("an unknown device") }, type: 1, becomes: "NOT_REGISTERED" },
  ];
  await talk.request("unknown_device", bob, mixed, { version: 0, what: "to a known and an unknown device" });
  const nonce = derive("nonce of bob's access token").subarray(0, 12);
  const contacts = talk.device(carol, "iphone", IOS, { allow_from_contacts_only: true });
  // The list holds the token of this very registration, which has version 1.
  const token = uuid(`${talk.title}, access token of ${contacts.token}, version 1`);
  const sealed = wire.seal(wire.shared(carol.secret, bob.publicKey), Buffer.from(token), nonce);
  const allowed_key_list = [hex(sealed)];
  await talk.register("register_contacts_only", contacts, { version: 0, fields: { allowed_key_list } });
  await talk.query("query_contacts_only", bob, carol, [contacts], { version: 0, what: "the list of allowed keys" });
  await talk.request("contact_pushes", bob, [{ to: contacts, type: 4 }], { version: 1, what: "by a contact" });
  return talk;
}

// Segments with original_payload_length, which status-go sets since May 2026, and without it.
async function segments() {
  const talk = new Conversation("segments of 2026", "Registrations and a request in segments, with and without field 7.");
  const [alice, bob] = ["alice", "bob"].map((name) => talk.person(name));
  const phone = talk.device(alice, "iphone", IOS);
  const segmented = (name, options) => talk.register(name, phone, { segments: 250, ...options });
  await segmented("in_order_version_0", { version: 0 });
  await segmented("in_order_version_1", { version: 1 });
  await segmented("last_part_first", { version: 0, order: [1, 0] });
  await segmented("a_part_twice", { version: 0, order: [0, 0, 1] });
  await segmented("without_length", { version: 0, hasLength: false });
  const options = { version: 0, segments: 250, what: "a request in segments" };
  await talk.request("request", bob, [{ to: phone, type: 4 }], options);
  return talk;
}

// Registrations of 2026 come in one WakuMessage up to 786,432 bytes, and in segments above. An entry of a list has 66.
async function sizes() {
  const talk = new Conversation("sizes of 2026", "Registrations of 150 KB and more.");
  const [alice, bob] = ["alice", "bob"].map((name) => talk.person(name));
  const phone = talk.device(alice, "iphone", IOS);
  for (const [name, count, segments] of [
    ["150_kb", 2_400],
    ["700_kb", 10_700],
    ["900_kb_in_segments", 14_000, SEGMENT_BYTES],
  ]) {
    const chats = Array.from({ length: count }, (_, number) => hex(wire.chatId(`chat ${number}`)));
    const fields = { muted_chat_list: chats.slice(0, count / 2), blocked_chat_list: chats.slice(count / 2) };
    await talk.register(`register_${name}`, phone, { version: 0, segments, fields });
    const filtered = [{ to: phone, type: 1, chat: `chat ${count - 1}`, becomes: "filtered" }];
    await talk.request(`last_of_${name}`, bob, filtered, { version: 0, what: "in the last blocked chat" });
    await talk.request(`push_of_${name}`, bob, [{ to: phone, type: 1 }], { version: 0, what: "in another chat" });
  }
  return talk;
}

// What did not change since 2024 comes out as the reference of 2024 recorded it: contents, seals, signatures, grants.
function compareWithRecordings() {
  let count = 0;
  for (const name of ["client_flow", "queries", "requests"]) {
    const file = new URL(`../vectors/scenario_${name}.json`, import.meta.url);
    const { keys, steps } = JSON.parse(readFileSync(file, "utf8"));
    const pairs = keys.flatMap((key) => [key, ...key.ephemeral_keys]);
    const secrets = Object.fromEntries(pairs.map((pair) => [pair.public_key, Buffer.from(pair.private_key, "hex")]));
    const server = Buffer.from(keys.find((key) => key.name === "server").public_key, "hex");
    for (const { application } of steps.flatMap(({ send, replies }) => [...send, ...replies])) {
      const secret = secrets[application.signer_public_key];
      const { registration, type_name, fields = registration?.fields } = application;
      if (!(type_name in MESSAGES) || !secret || !fields) continue;
      let inner = encode(MESSAGES[type_name], fields);
      if (registration) {
        inner = wire.seal(wire.shared(secret, server), inner, Buffer.from(registration.nonce, "hex"));
        if (fields.grant) assert.equal(hex(wire.grant(secret, server, fields.access_token)), fields.grant);
      }
      assert.equal(hex(inner), application.inner);
      assert.equal(hex(wire.wrap(application.type, inner, secret)), application.metadata);
      count += 1;
    }
  }
  return count;
}

console.log(`${compareWithRecordings()} messages of 2024 come out as recorded`);
const [directory, which] = process.argv.slice(2);
writeFileSync(join(directory, "profile.txt"), "status\n");
for (const make of which === "sizes" ? [sizes] : [pushes, queries, segments]) {
  const file = join(directory, `scenario_2026_${make.name}.json`);
  writeFileSync(file, `${JSON.stringify(await make(), null, 1)}\n`);
}
