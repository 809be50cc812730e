// The protocol of docs/reference/wire.md as a client needs it: bytes in, bytes out. No network, no clock, no state.
import { createCipheriv, createDecipheriv, pbkdf2Sync, randomBytes } from "node:crypto";
import { fileURLToPath } from "node:url";
import { secp256k1 } from "@noble/curves/secp256k1.js";
import { keccak_256, shake256 } from "@noble/hashes/sha3.js";
import { ecies, symmetric } from "@waku/message-encryption";
import protobuf from "protobufjs";

const proto = (name) => fileURLToPath(new URL(`../../proto/wakupush/pb/${name}.proto`, import.meta.url));
const root = protobuf.loadSync([proto("application_metadata"), proto("push_notification")]);
const type = (name) => root.lookupType(`wakupush.${name}`);
const Metadata = type("ApplicationMetadataMessage");
export const Types = root.lookupEnum("wakupush.ApplicationMetadataMessage.Type").values;

export const encode = (name, value) => Buffer.from(type(name).encode(type(name).fromObject(value)).finish());
export const decode = (name, bytes) =>
  type(name).toObject(type(name).decode(bytes), { bytes: Buffer, longs: String, enums: String, defaults: true });

// Keys: 32 bytes, and 65 bytes that begin with 04.
const utf8 = (text) => Buffer.from(text, "utf8");
export const keccak = (...parts) => Buffer.from(keccak_256(Buffer.concat(parts)));
export const hash64 = (bytes) => Buffer.from(shake256(bytes, { dkLen: 64 }));
export const newKey = () => Buffer.from(secp256k1.utils.randomSecretKey());
export const publicOf = (key) => Buffer.from(secp256k1.getPublicKey(key, false));
export const compressed = (publicKey) => Buffer.from(secp256k1.Point.fromBytes(publicKey).toBytes(true));
export const keyHash = (publicKey) => hash64(compressed(publicKey));
export const partition = (publicKey) => BigInt(`0x${publicKey.subarray(1, 33).toString("hex")}`) % 5000n;
export const shared = (key, publicKey) => Buffer.from(secp256k1.getSharedSecret(key, publicKey, true).subarray(1));
export const parseKey = (text) => {
  const point = secp256k1.Point.fromBytes(Buffer.from(text.replace(/^0x/, ""), "hex"));
  return Buffer.from(point.toBytes(false));
};

// Signatures: r | s | v, 65 bytes, over 32 bytes. The library has v in front.
export const sign = (digest, key) => {
  const signature = secp256k1.sign(digest, key, { prehash: false, format: "recovered" });
  return Buffer.concat([signature.subarray(1), signature.subarray(0, 1)]);
};
export const recover = (digest, signature) => {
  const parsed = Buffer.concat([signature.subarray(64), signature.subarray(0, 64)]);
  const found = secp256k1.recoverPublicKey(parsed, digest, { prehash: false });
  return Buffer.from(secp256k1.Point.fromBytes(found).toBytes(false));
};

// Names of users, chats, authors; grants.
export const chatId = (name) => hash64(utf8(name));
export const author = (publicKey) => hash64(utf8(`0x${publicKey.toString("hex")}`));
const granted = (client, server, accessToken) => keccak(compressed(client), compressed(server), utf8(accessToken));
export const grant = (key, server, accessToken) => sign(granted(publicOf(key), server, accessToken), key);
export const isGranted = (signature, client, server, accessToken) => {
  try {
    return recover(granted(client, server, accessToken), signature).equals(client);
  } catch {
    return false; // no signature
  }
};

// Topics: the first 4 bytes of the Keccak-256 of a name.
export const contentTopic = (name) => `/waku/1/0x${keccak(utf8(name)).toString("hex", 0, 4)}/rfc26`;
export const partitionedTopic = (publicKey) => `contact-discovery-${partition(publicKey)}`;
export const queryTopic = (user) => keyHash(user).toString("hex");
export const topicKey = (name) => pbkdf2Sync(name, "", 65356, 32, "sha256");

// What a registration is sealed with: nonce (12) | AES-256-GCM.
export const seal = (key, data, nonce = randomBytes(12)) => {
  const cipher = createCipheriv("aes-256-gcm", key, nonce);
  return Buffer.concat([nonce, cipher.update(data), cipher.final(), cipher.getAuthTag()]);
};
export const unseal = (key, sealed) => {
  const decipher = createDecipheriv("aes-256-gcm", key, sealed.subarray(0, 12));
  decipher.setAuthTag(sealed.subarray(-16));
  return Buffer.concat([decipher.update(sealed.subarray(12, -16)), decipher.final()]);
};

// The application layer: signed, and named by the signer's key and the bytes.
export const wrap = (type, inner, key) =>
  Buffer.from(Metadata.encode({ signature: sign(keccak(inner), key), payload: inner, type }).finish());
export const messageId = (signer, metadata) => keccak(signer, metadata);
export const unwrap = (metadata) => {
  const { signature, payload, type } = Metadata.toObject(Metadata.decode(metadata), { bytes: Buffer });
  const signer = recover(keccak(payload), signature);
  return { type, inner: payload, signer, messageId: messageId(signer, metadata) };
};

// The transport layer, 26/WAKU2-PAYLOAD: js-waku's own.
const routingInfo = { pubsubTopic: "" }; // only sending uses it
export const sealTo = async (recipient, metadata, key, name = partitionedTopic(recipient)) => {
  const options = { contentTopic: contentTopic(name), routingInfo, publicKey: recipient, sigPrivKey: key };
  return ecies.createEncoder(options).toProtoObj({ payload: metadata });
};
export const sealOn = async (name, metadata, key) => {
  const options = { contentTopic: contentTopic(name), routingInfo, symKey: topicKey(name), sigPrivKey: key };
  return symmetric.createEncoder(options).toProtoObj({ payload: metadata });
};
export const open = async (key, topic, payload) => {
  const message = { payload, contentTopic: topic, version: 1 };
  const opened = await ecies.createDecoder(topic, routingInfo, key).fromProtoObj("", message);
  return opened ? unwrap(Buffer.from(opened.payload)) : undefined;
};
