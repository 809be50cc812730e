// A Waku node that serves filter and light push, by its REST API.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

export class RestNode {
  constructor(url, shard) {
    this.url = url;
    this.shard = shard;
  }

  async #ask(method, path, body) {
    const headers = { "Content-Type": "application/json" };
    for (;;) {
      const answer = await fetch(this.url + path, { method, headers, body: body && JSON.stringify(body) });
      if (answer.ok) return answer.headers.get("Content-Type")?.includes("json") ? answer.json() : answer.text();
      if (![429, 503].includes(answer.status)) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
      await sleep(1000); // service nodes take about one request a second
    }
  }

  // Ask for the messages of a topic; before the question, because its answer may come at once.
  async subscribe(contentTopic) {
    const body = { requestId: randomUUID(), contentFilters: [contentTopic], pubsubTopic: this.shard };
    await this.#ask("POST", "/filter/v2/subscriptions", body);
  }

  async publish({ payload, contentTopic, version, timestamp }) {
    const json = { payload: Buffer.from(payload).toString("base64"), contentTopic, version, timestamp: Number(timestamp) };
    await this.#ask("POST", "/lightpush/v1/message", { pubsubTopic: this.shard, message: json });
  }

  // The payloads that have arrived on a topic since the last call.
  async read(contentTopic) {
    const messages = await this.#ask("GET", `/filter/v2/messages/${encodeURIComponent(contentTopic)}`);
    return messages.map(({ payload }) => Buffer.from(payload, "base64"));
  }

  async close() {}
}
