/** Very many calls of agents over a faulty model behind HTTP, as fast as they go, and what they and the process came to. */

import { Pool } from "undici";
import { caseSeed, randomOf } from "../../fuzz/random.ts";
import { serve } from "../../support/command-line.ts";
import { type Measure, type Measured, serveMeasured } from "../../support/measured.ts";
import { type Sockets, settledSockets } from "../aftermath.ts";
import { chat, object, stream, streamedObject, text } from "../agents.ts";
import { type Caller, Refused, type Visit } from "../caller.ts";

const MANIFEST = `
name: Calls
version: 1.0.0
server: { port: 0, transport: "\${TRANSPORT}", limits: { request: 60s } }
store: sqlite:data/calls.db
logs: { level: warn, buffer: 500 }
observability: { sample: 0.01 }
providers:
  up:
    use: openai-compatible
    baseURL: "\${UPSTREAM}"
    retries: 1
    timeouts: { connect: 5s, firstByte: 5s, idle: 5s, total: 30s }
tools:
  lookup_order: { use: lookup-order }
agents:
  alone: { name: Alone, description: Answers, instructions: Answer., model: up/one, tools: [lookup_order], memory: false }
  chained: { name: Chained, description: Answers, instructions: Answer., model: [up/one, up/two], tools: [lookup_order], memory: false }
`;

const VISITS: readonly (readonly [weight: number, named: { name: string; visit: Visit }])[] = [
  [8, { name: "text", visit: text }],
  [8, { name: "stream", visit: stream }],
  [4, { name: "chat", visit: chat }],
  [2, { name: "object", visit: object }],
  [2, { name: "streamed object", visit: streamedObject }],
];

const CLIENTS = 64;
/** Milliseconds within which a call must be over: the limit of a request, and what a busy machine takes. */
const PATIENCE = 120_000;
/** How often the process is measured. */
const MEASURES = 20;

interface CallsSettings {
  readonly calls: number;
  readonly seed: number;
  readonly transport: string;
  readonly signal?: AbortSignal;
  readonly tell: (line: string) => void;
}

export interface CallsReport {
  /** How often each kind of call had each outcome. */
  readonly outcomes: Map<string, Map<string, number>>;
  /** What must not happen, in words. */
  readonly wrong: string[];
  /** After a garbage collection each, at even distances. */
  readonly measures: Measure[];
  /** What the model did, by its own count. */
  readonly gave: Record<string, number>;
  readonly seconds: number;
  /** The longest that a call took, in milliseconds. */
  readonly longest: number;
  /** Sockets of the process, before and after the load. */
  readonly sockets: Sockets;
  readonly served: Measured;
}

type Registrar = Parameters<typeof serve>[0];

export async function callOften(test: Registrar, settings: CallsSettings): Promise<CallsReport> {
  const { calls, seed, transport, signal, tell } = settings;
  const program = "test/soak/calls/upstream.ts";
  const model = await serve(test, [process.execPath, "--import", "tsx", program, String(seed)]);
  const served = await serveMeasured(test, MANIFEST, { UPSTREAM: model.url, TRANSPORT: transport });
  const before = served.sockets();
  const pool = new Pool(served.url, { connections: CLIENTS, bodyTimeout: 0, headersTimeout: 0 });
  const outcomes: CallsReport["outcomes"] = new Map();
  const wrong: string[] = [];
  const measures: Measure[] = [];
  const serials = new Set<number>();
  const began = performance.now();
  let begun = 0;
  let done = 0;
  let longest = 0;
  let measuring = Promise.resolve();

  async function measure(): Promise<void> {
    const weight = await served.measure();
    measures.push(weight);
    const rate = (done / ((performance.now() - began) / 1_000)).toFixed(0);
    tell(`${done} calls, ${rate} a second: heap ${mega(weight.heapUsed)}, resident ${mega(weight.rss)}`);
  }

  async function callOnce(caller: Caller): Promise<void> {
    const { name, visit } = caller.random.weighted(VISITS);
    const from = performance.now();
    const outcome = await within(visit(caller)).catch((error: Error) => {
      if (error instanceof Refused) return error.outcome;
      wrong.push(`${name}: ${error.stack}`);
      return "wrong";
    });
    longest = Math.max(longest, performance.now() - from);
    const counts = outcomes.get(name) ?? new Map<string, number>();
    outcomes.set(name, counts.set(outcome, (counts.get(outcome) ?? 0) + 1));
    done += 1;
    if (done % Math.ceil(calls / MEASURES) === 0) measuring = measuring.then(measure);
  }

  await Promise.all(
    Array.from({ length: CLIENTS }, async (_, index) => {
      const random = randomOf(caseSeed(seed, index));
      const caller: Caller = { url: served.url, pool, random, name: `user${index}`, next: () => begun, serials };
      while (begun < calls && wrong.length === 0 && !signal?.aborted) {
        begun += 1;
        const number = begun;
        await callOnce({ ...caller, next: () => number });
      }
    }),
  );
  const seconds = (performance.now() - began) / 1_000;
  await measuring.catch((error: Error) => void wrong.push(String(error)));
  await pool.destroy();
  await model.interrupt("SIGTERM");
  const sockets = await settledSockets(served, before);
  const [, gave = "{}"] = /^gave (.*)$/m.exec(model.stdout()) ?? [];
  return { outcomes, wrong, measures, gave: JSON.parse(gave), seconds, longest, sockets, served };
}

export const mega = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;

function within<T>(visit: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no end within ${PATIENCE / 1_000} s`)), PATIENCE);
  });
  return Promise.race([visit, late]).finally(() => clearTimeout(timer));
}
