// A Waku node that serves filter and light push, by js-waku (@waku/sdk) over WebSocket. README.md explains the repairs.
import { setTimeout as sleep } from "node:timers/promises";
import { yamux } from "@chainsafe/libp2p-yamux";
import { createLightNode, Protocols, waku } from "@waku/sdk";

// js-waku asks for Node.js 22; this is all that it misses in 20.
Promise.withResolvers ??= () => {
  const resolvers = {};
  resolvers.promise = new Promise((resolve, reject) => Object.assign(resolvers, { resolve, reject }));
  return resolvers;
};

const PACE = 1_100; // milliseconds; a go-waku takes one request a second from a client
const PATIENCE = 2_500;
const ATTEMPTS = 5;

export class SdkNode {
  #received = new Map();
  #free = { subscribe: 0, publish: 0 }; // when the service node takes the next request of each kind

  static async connect(address, shard) {
    const [clusterId, shardId] = shard.split("/").slice(4).map(Number);
    // 1. go-waku has no other muxer. filterMultiaddrs: ws:// without TLS is good, too.
    const libp2p = { streamMuxers: [yamux()], filterMultiaddrs: false, hideWebSocketInfo: true };
    const networkConfig = { clusterId };
    const discovery = { dns: false, peerExchange: false, peerCache: false };
    const node = await createLightNode({ networkConfig, libp2p, discovery, numPeersToUse: 1 });
    node.connectionManager.hasShardInfo = async () => false; // 2. js-waku reads no shards in a go-waku's metadata
    const { filter, lightPush, store, libp2p: host } = node;
    // 4. Streams that js-waku opens ahead count as requests.
    for (const { streamManager, streamManagerV2 } of [filter.protocol, lightPush.protocol, store.protocol]) {
      for (const each of [streamManager, streamManagerV2]) {
        if (each) each.libp2p.events.removeEventListener("peer:update", each.handlePeerUpdateStreamPool);
      }
    }
    // 5. js-waku leaves its side of each stream open, and takes no more after 100.
    await host.unhandle(waku.FilterCodecs.PUSH);
    const push = (data) => {
      filter.protocol.onRequest(data);
      data.stream.closeWrite().catch(() => {});
    };
    await host.handle(waku.FilterCodecs.PUSH, push, { maxInboundStreams: 100 });
    await node.dial(address);
    await node.waitForPeers([Protocols.Filter, Protocols.LightPush], 10_000);
    const [peer] = await host.peerStore.all();
    const useLegacy = !peer.protocols.includes(waku.LightPushCodec); // 3. go-waku has only the old light push
    return new SdkNode(node, { clusterId, shardId, pubsubTopic: shard }, useLegacy);
  }

  constructor(node, routingInfo, useLegacy) {
    this.node = node;
    this.routingInfo = routingInfo;
    this.useLegacy = useLegacy;
  }

  async #turn(kind) {
    const wait = this.#free[kind] - Date.now();
    this.#free[kind] = Math.max(Date.now(), this.#free[kind]) + PACE;
    await sleep(Math.max(0, wait));
  }

  async subscribe(contentTopic) {
    const received = [];
    this.#received.set(contentTopic, received);
    const { pubsubTopic } = this.routingInfo;
    // js-waku's own decoder drops messages of version 1, which servers send.
    const decoder = { contentTopic, pubsubTopic, fromProtoObj: async (_, message) => message };
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      await this.#turn("subscribe");
      const subscribed = this.node.filter.subscribe(decoder, ({ payload }) => received.push(Buffer.from(payload)));
      if (await Promise.race([subscribed, sleep(PATIENCE, false)])) return; // 4. a refused request never ends
      await this.#turn("subscribe");
      await this.node.filter.unsubscribe(decoder); // or js-waku takes the topic for subscribed
    }
    throw new Error("the node takes no subscription");
  }

  async publish(message) {
    // js-waku's own encoder writes version 0, which clients of Status before 2.38 cannot read.
    const { contentTopic, payload } = message;
    const own = { toProtoObj: async () => message, toWire: async () => payload };
    const encoder = { contentTopic, ephemeral: false, routingInfo: this.routingInfo, ...own };
    encoder.pubsubTopic = this.routingInfo.pubsubTopic;
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      await this.#turn("publish");
      const sent = this.node.lightPush.send(encoder, message, { useLegacy: this.useLegacy, autoRetry: false });
      const { successes } = (await Promise.race([sent, sleep(PATIENCE)])) ?? { successes: [] };
      if (successes.length) return;
    }
    throw new Error("the node takes no message");
  }

  async read(contentTopic) {
    return this.#received.get(contentTopic).splice(0);
  }

  async close() {
    await this.node.stop();
  }
}
