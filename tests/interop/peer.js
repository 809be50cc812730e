// A client's side of 26/WAKU2-PAYLOAD: one JSON request per line on stdin, one JSON answer per line on stdout.
//
//   {"do": "seal", "mode": "asymmetric" | "symmetric", "key", "signer": null | private key, "data"} -> {"payload"}
//   {"do": "open", "mode", "key", "payload"} -> {"data", "signer": null | public key} | {"refused": why}
//
// Bytes are hex. The key is the recipient's public (seal) or private (open) one, or the shared one.
// Only the public encoders and decoders of the package are used, as a client uses them.
import { createInterface } from "node:readline";
import { ecies, symmetric } from "@waku/message-encryption";

const VERSION = 1;
const contentTopic = "/waku/1/0x00000000/rfc26";
const routingInfo = { pubsubTopic: "/waku/2/rs/16/32" }; // not used before a message is sent

const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));
const hex = (array) => Buffer.from(array).toString("hex");

const modes = {
  asymmetric: {
    encoder: (publicKey, sigPrivKey) => ecies.createEncoder({ contentTopic, routingInfo, publicKey, sigPrivKey }),
    decoder: (privateKey) => ecies.createDecoder(contentTopic, routingInfo, privateKey),
  },
  symmetric: {
    encoder: (symKey, sigPrivKey) => symmetric.createEncoder({ contentTopic, routingInfo, symKey, sigPrivKey }),
    decoder: (symKey) => symmetric.createDecoder(contentTopic, routingInfo, symKey),
  },
};

const commands = {
  async seal({ mode, key, signer, data }) {
    const encoder = modes[mode].encoder(bytes(key), signer ? bytes(signer) : undefined);
    const message = await encoder.toProtoObj({ payload: bytes(data) });
    if (message.version !== VERSION) throw new Error(`version ${message.version}`);
    return { payload: hex(message.payload) };
  },
  async open({ mode, key, payload }) {
    const message = { payload: bytes(payload), contentTopic, version: VERSION };
    let opened;
    try {
      opened = await modes[mode].decoder(bytes(key)).fromProtoObj(routingInfo.pubsubTopic, message);
    } catch (error) {
      return { refused: String(error) };
    }
    if (!opened) return { refused: "no message" };
    const signer = opened.signaturePublicKey;
    return { data: hex(opened.payload), signer: signer ? hex(signer) : null };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  process.stdout.write(JSON.stringify(await commands[request.do](request)) + "\n");
}
