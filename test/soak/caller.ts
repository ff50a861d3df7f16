/** What every client of the soak has: a way to call, numbers of its own, and what may and may not come back. */
import assert from "node:assert/strict";
import type { Dispatcher, Pool } from "undici";
import type { Random } from "../fuzz/random.ts";

// biome-ignore lint/suspicious/noExplicitAny: replies of many shapes
export type Loose = any;

/** Answered as it should be, refused within the rules (the reason is counted), or left by the client itself. */
export type Outcome = "answered" | "left" | "late" | `refused: ${string}`;

export interface Caller {
  readonly url: string;
  readonly pool: Pool;
  readonly random: Random;
  /** Names what this one makes: clients do not meet. */
  readonly name: string;
  /** A number that was never asked before. */
  next(): number;
  /** Serial numbers of the model's answers that have come back. */
  readonly serials: Set<number>;
}

/** What one client does over and over: each call is one visit. */
export type Visit = (caller: Caller) => Promise<Outcome>;

export class Refused extends Error {
  readonly outcome: Outcome;
  constructor(reason: string) {
    super(reason);
    this.outcome = `refused: ${reason}`;
  }
}

/** Reasons for which a request may be refused here, by their code: the model has faults, and limits may be reached. */
const ALLOWED = new Set(["provider_failed", "step_failed", "unavailable", "rate_limited"]);

export const open = (
  { pool }: Caller,
  method: Dispatcher.HttpMethod,
  path: string,
  body?: unknown,
): Promise<Dispatcher.ResponseData> =>
  pool.request({
    method,
    path,
    headers: body === undefined ? {} : { "content-type": "application/json" },
    body: body === undefined ? null : JSON.stringify(body),
  });

/** `data` of a reply that must succeed, or be refused for a reason that is allowed. */
export async function call(
  caller: Caller,
  method: Dispatcher.HttpMethod,
  path: string,
  body?: unknown,
): Promise<Loose> {
  const reply = await open(caller, method, path, body);
  const text = await reply.body.text();
  if (reply.statusCode < 300) return JSON.parse(text).data;
  throw refusal(reply, `${method} ${path}`, text);
}

/** Throws what a reply means that is no success. */
export function refusal({ statusCode, headers }: Dispatcher.ResponseData, what: string, text: string): Error {
  const code = String(headers["x-error-code"]);
  return ALLOWED.has(code) ? new Refused(code) : new Error(`${what} is ${statusCode}: ${text.slice(0, 300)}`);
}

/** Expects a refusal of exactly this status. */
export async function expectStatus(
  caller: Caller,
  status: number,
  method: Dispatcher.HttpMethod,
  path: string,
): Promise<void> {
  const reply = await open(caller, method, path);
  const text = await reply.body.text();
  assert.equal(reply.statusCode, status, `${method} ${path}: ${text.slice(0, 300)}`);
}

/** The answer must be to this question, and come back once. */
export function checkAnswer({ serials }: Caller, text: string, number: number): void {
  const [, asked, serial] = /^answer (\d+) #(\d+)(?: |$)/.exec(text) ?? [];
  assert.equal(Number(asked), number, `asked ${number}, and got: ${text.slice(0, 100)}`);
  takeSerial(serials, Number(serial));
  assert.match(text, / end$/, `an answer in part: ${text.slice(-100)}`);
}

export function takeSerial(serials: Set<number>, serial: number): void {
  assert.ok(!serials.has(serial), `answer #${serial} has come back twice`);
  serials.add(serial);
}

interface StreamEvent {
  readonly id: string;
  readonly data: Loose;
}

/**
 * Events of a stream as they come. What is left of the body when the reader stops is thrown away with its connection.
 *
 * @param pause milliseconds between two reads
 */
export async function* eventsOf(reply: Dispatcher.ResponseData, pause = 0): AsyncGenerator<StreamEvent> {
  let rest = "";
  reply.body.setEncoding("utf8");
  try {
    for await (const chunk of reply.body) {
      const blocks = (rest + chunk).split("\n\n");
      rest = blocks.pop()!;
      for (const block of blocks) {
        const [, id = ""] = /^id: (.*)$/m.exec(block) ?? [];
        const [, data] = /^data: (.*)$/m.exec(block) ?? [];
        if (data !== undefined && data !== "[DONE]") yield { id, data: JSON.parse(data) };
      }
      if (pause > 0) await new Promise((resolve) => setTimeout(resolve, pause));
    }
    assert.equal(rest, "", "a stream that ends in the middle of an event");
  } finally {
    reply.body.destroy();
    reply.body.on("error", () => {});
  }
}
