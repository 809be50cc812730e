// Holds protocol.js to the vectors in docs/reference/wire/vectors.json: node vectors.js
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import * as wire from "./protocol.js";

const vectors = JSON.parse(readFileSync(new URL("../../docs/reference/wire/vectors.json", import.meta.url), "utf8"));
const bytes = (hex) => Buffer.from(hex, "hex");
const hex = (buffer) => buffer.toString("hex");
const holds = (check) => {
  try {
    return check();
  } catch {
    return undefined;
  }
};

const checks = {
  keys(each) {
    const publicKey = wire.publicOf(bytes(each.private_key));
    assert.equal(hex(publicKey), each.public_key);
    assert.equal(hex(wire.compressed(publicKey)), each.compressed_public_key);
    assert.equal(hex(wire.keyHash(publicKey)), each.public_key_hash);
    assert.equal(hex(wire.author(publicKey)), each.author_hash);
    assert.equal(Number(wire.partition(publicKey)), each.partition);
  },
  topics(each) {
    assert.equal(wire.contentTopic(each.name), each.content_topic);
    if (each.symmetric_key) assert.equal(hex(wire.topicKey(each.name)), each.symmetric_key);
  },
  hashes(each) {
    assert.equal(hex(wire.chatId(each.text)), each.shake256_64);
    assert.equal(hex(wire.keccak(Buffer.from(each.text))), each.keccak256);
  },
  shared_keys(each) {
    assert.equal(hex(wire.shared(bytes(each.private_key_a), bytes(each.public_key_b))), each.shared_key);
    assert.equal(hex(wire.shared(bytes(each.private_key_b), bytes(each.public_key_a))), each.shared_key);
  },
  seals(each) {
    const opened = holds(() => hex(wire.unseal(bytes(each.key), bytes(each.ciphertext))));
    assert.equal(opened, each.opens ? each.plaintext : undefined);
    const sealed = wire.seal(bytes(each.key), bytes(each.plaintext), bytes(each.nonce));
    if (each.opens) assert.equal(hex(sealed), each.ciphertext);
  },
  grants(each) {
    const parties = [bytes(each.client_public_key), bytes(each.server_public_key)];
    assert.equal(wire.isGranted(bytes(each.grant), ...parties, each.access_token), each.valid);
  },
  access_tokens(each) {
    const user = wire.publicOf(bytes(each.user_private_key));
    const open = (key) => holds(() => String(wire.unseal(wire.shared(bytes(key), user), bytes(each.item))));
    assert.equal(open(each.contact_private_key), each.access_token);
    assert.equal(open(each.stranger_private_key), undefined);
  },
  metadata(each) {
    const opened = holds(() => wire.unwrap(bytes(each.metadata)));
    assert.equal(Boolean(opened), each.parses);
    if (!opened) return;
    assert.equal(hex(opened.signer), each.signer_public_key);
    assert.equal(hex(opened.messageId), each.message_id);
    assert.equal(hex(wire.wrap(each.type, bytes(each.inner), bytes(each.private_key))), each.metadata);
  },
  async conversation(each) {
    if (!each.recipient_private_key) return; // a query: only servers open those
    const { content_topic: topic, payload } = each.waku_message;
    const opened = await wire.open(bytes(each.recipient_private_key), topic, Buffer.from(payload, "base64"));
    assert.equal(opened.type, each.type);
    assert.equal(hex(opened.inner), each.inner);
    assert.equal(hex(opened.messageId), each.message_id);
    assert.equal(hex(opened.signer), hex(wire.publicOf(bytes(each.sender_private_key))));
  },
};

let count = 0;
for (const [section, check] of Object.entries(checks)) {
  for (const each of vectors[section]) {
    await check(each);
    count += 1;
  }
}
console.log(`${count} vectors hold`);
