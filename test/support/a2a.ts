/** A2A as a client sends it, without a library of it. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import type { Loose } from "./served-upstream.ts";
import { parseEvents, type TestService } from "./service.ts";

/** A message with an id of its own. */
export const said = (text: string, more: object = {}): Loose => ({
  message: { messageId: randomUUID(), role: "ROLE_USER", parts: [{ text }], ...more },
});

/** Replies at once, with the task at work. */
export const now = { configuration: { returnImmediately: true } };

export class A2aCaller {
  readonly #service: Pick<TestService, "post">;
  readonly #headers: Record<string, string>;

  constructor(service: Pick<TestService, "post">, headers: Record<string, string> = {}) {
    this.#service = service;
    this.#headers = { "a2a-version": "1.0", ...headers };
  }

  /** The whole reply of JSON-RPC. */
  async rpc(agent: string, method: string, params: unknown): Promise<Loose> {
    const body = { jsonrpc: "2.0", id: 7, method, params };
    const reply = await this.#service.post(`/a2a/${agent}`, body, this.#headers);
    assert.equal(reply.status, 200);
    assert.match(reply.headers.get("content-type")!, /^application\/json/);
    const { jsonrpc, id, ...rest } = (await reply.json()) as Loose;
    assert.deepEqual([jsonrpc, id], ["2.0", 7]);
    return rest;
  }

  async result(agent: string, method: string, params: unknown): Promise<Loose> {
    const { result, error } = await this.rpc(agent, method, params);
    assert.equal(error, undefined, JSON.stringify(error));
    return result;
  }

  async error(agent: string, method: string, params: unknown): Promise<[code: number, message: string]> {
    const { error } = await this.rpc(agent, method, params);
    assert.ok(error !== undefined, `${method} was not refused`);
    return [error.code, error.message];
  }

  /** The task of a message. */
  async send(agent: string, params: unknown): Promise<Loose> {
    return (await this.result(agent, "SendMessage", params)).task;
  }

  get(agent: string, id: string): Promise<Loose> {
    return this.result(agent, "GetTask", { id });
  }

  /** The open reply of a method that streams. */
  open(agent: string, method: string, params: unknown, signal?: AbortSignal): Promise<Response> {
    const body = { jsonrpc: "2.0", id: 7, method, params };
    return this.#service.post(`/a2a/${agent}`, body, this.#headers).then((reply) => {
      signal?.addEventListener("abort", () => void reply.body?.cancel());
      return reply;
    });
  }

  /** All events of a method that streams, without their envelope. */
  async events(agent: string, method: string, params: unknown): Promise<Loose[]> {
    return eventsOf(await this.open(agent, method, params));
  }

  /** The task when it is in a state. */
  async when(agent: string, id: string, state: string): Promise<Loose> {
    for (let tries = 0; tries < 6_000; tries++) {
      const task = await this.get(agent, id);
      if (task.status.state === state) return task;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    assert.fail(`the task is never ${state}: ${JSON.stringify(await this.get(agent, id))}`);
  }
}

/**
 * All events of an open reply, without their envelope.
 *
 * @param hear called with those so far whenever more have come
 */
export async function eventsOf(reply: Response, hear: (events: Loose[]) => void = () => {}): Promise<Loose[]> {
  assert.match(reply.headers.get("content-type")!, /^text\/event-stream/);
  const decoder = new TextDecoder();
  let text = "";
  const events = () =>
    parseEvents(text.slice(0, text.lastIndexOf("\n\n") + 2)).map(({ data }) => JSON.parse(data).result);
  for await (const chunk of reply.body!) {
    text += decoder.decode(chunk, { stream: true });
    hear(events());
  }
  return events();
}

export const textOf = (task: Loose): string =>
  task.artifacts[0].parts.map((part: { text: string }) => part.text).join("");
