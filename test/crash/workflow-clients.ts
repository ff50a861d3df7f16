/** Clients that run workflows: one request at a time each, chosen by chance, and what they know of every execution. */
import assert from "node:assert/strict";
import type { Pool } from "undici";

/** `slowly` is a row of steps, and is not among what `WorkflowClient` runs. */
type Kind = "straight" | "approval" | "slowly";
export const STEPS = 6;

/** An execution as its client knows it. */
export interface Known {
  readonly id: string;
  readonly workflow: Kind;
  readonly n: number;
  /** What it must be at least: `asked` may not exist, `begun` exists, `waits` is suspended, the answer given; `over` is completed. */
  fact: "asked" | "begun" | "waits" | "answered" | "over";
  /** Events that the client has read, by their numbers. */
  readonly events: string[];
}

// biome-ignore lint/suspicious/noExplicitAny: replies of many shapes
type Loose = any;

export const resultOf = ({ workflow, n }: Known): object =>
  ({
    straight: { n: n + 3, a: n, b: n },
    approval: { n: n + 2, answer: `yes ${n}` },
    slowly: { n: n + STEPS },
  })[workflow];

export class WorkflowClient {
  readonly executions: Known[] = [];
  readonly #name: string;
  readonly #random: () => number;
  acknowledged = 0;

  constructor(name: string, random: () => number) {
    this.#name = name;
    this.#random = random;
  }

  /** Works until the connection breaks, which is an error unless `killed()`. */
  async work(pool: Pool, killed: () => boolean): Promise<void> {
    while (!killed()) {
      try {
        await this.#next(pool);
      } catch (error) {
        if (killed() && !(error instanceof assert.AssertionError)) return;
        throw error;
      }
      this.acknowledged += 1;
    }
  }

  #next(pool: Pool): Promise<void> {
    const waiting = this.executions.findLast(({ fact }) => fact === "waits");
    const chance = this.#random();
    if (waiting !== undefined && chance < 0.5) return this.#resume(pool, waiting);
    const workflow = chance < 0.7 ? "straight" : "approval";
    const n = Math.floor(this.#random() * 1000);
    const known: Known = { id: `${this.#name}-${this.executions.length}`, workflow, n, fact: "asked", events: [] };
    this.executions.push(known);
    return this.#random() < 0.5 ? this.#execute(pool, known) : this.#stream(pool, known);
  }

  async #execute(pool: Pool, known: Known): Promise<void> {
    this.#settle(known, await post(pool, `/workflows/${known.workflow}/execute`, bodyOf(known)));
  }

  async #resume(pool: Pool, known: Known): Promise<void> {
    known.fact = "answered";
    const path = `/workflows/approval/executions/${known.id}/resume`;
    this.#settle(known, await post(pool, path, { resumeData: { answer: `yes ${known.n}` } }));
  }

  #settle(known: Known, { status, result }: Loose): void {
    if (status === "suspended") {
      assert.equal(known.workflow, "approval");
      known.fact = "waits";
      return;
    }
    assert.equal(status, "completed");
    assert.deepEqual(result, resultOf(known));
    known.fact = "over";
  }

  async #stream(pool: Pool, known: Known): Promise<void> {
    const path = `/workflows/${known.workflow}/stream`;
    const reply = await pool.request({ method: "POST", path, headers: JSON_TYPE, body: JSON.stringify(bodyOf(known)) });
    assert.equal(reply.statusCode, 200);
    let rest = "";
    reply.body.setEncoding("utf8");
    for await (const chunk of reply.body) {
      const blocks = (rest + chunk).split("\n\n");
      rest = blocks.pop()!;
      for (const block of blocks) {
        const event = /^id: (\d+)\ndata: (.*)$/.exec(block);
        if (event === null) continue;
        known.events.push(event[2]!);
        assert.equal(Number(event[1]), known.events.length, "the number of an event");
        known.fact = "begun";
      }
    }
    this.#settle(known, JSON.parse(known.events.at(-1)!));
  }
}

const JSON_TYPE = { "content-type": "application/json" };

const bodyOf = ({ id, n }: Known) => ({ input: { n }, options: { executionId: id } });

async function post(pool: Pool, path: string, body: object): Promise<Loose> {
  const reply = await pool.request({ method: "POST", path, headers: JSON_TYPE, body: JSON.stringify(body) });
  const text = await reply.body.text();
  assert.equal(reply.statusCode, 200, `POST ${path} is ${reply.statusCode}: ${text}`);
  return JSON.parse(text).data;
}

/** Compares what is there with what a client knows, which becomes what is there. */
export async function checkExecution(pool: Pool, known: Known): Promise<void> {
  const path = `/workflows/${known.workflow}/executions/${known.id}`;
  const reply = await pool.request({ method: "GET", path: `${path}/state` });
  const text = await reply.body.text();
  if (reply.statusCode === 404) {
    assert.equal(known.fact, "asked", `${known.id} is lost`);
    return;
  }
  assert.equal(reply.statusCode, 200, text);
  const { status } = JSON.parse(text).data;
  const waits = known.workflow === "approval" && known.fact !== "answered" && known.fact !== "over";
  const allowed = known.fact === "answered" ? ["suspended", "completed"] : [waits ? "suspended" : "completed"];
  assert.ok(allowed.includes(status), `${known.id} is ${status}, and its client knows: ${known.fact}`);
  known.fact = status === "suspended" ? "waits" : "over";
  await checkEvents(pool, known, path);
}

/** What was told is on record, word for word; every step has ended once; the numbers have no gap. */
async function checkEvents(pool: Pool, known: Known, path: string): Promise<void> {
  const reply = await pool.request({ method: "GET", path: `${path}/stream` });
  const blocks = (await reply.body.text()).split("\n\n").filter((block) => block.includes("data: "));
  const events = blocks.map((block) => /^id: (\d+)\ndata: (.*)$/.exec(block)!);
  assert.deepEqual(
    events.map(([, id]) => Number(id)),
    events.map((_event, index) => index + 1),
    known.id,
  );
  for (const [index, told] of known.events.entries()) {
    assert.equal(events[index]?.[2], told, `event ${index + 1} of ${known.id}`);
  }
  const all = events.map(([, , data]) => JSON.parse(data!) as Loose);
  const ended = all.filter(({ type }) => type === "step-complete").map(({ from }) => from);
  assert.equal(new Set(ended).size, ended.length, `${known.id}: a step has ended twice: ${ended}`);
  const last = all.at(-1);
  assert.deepEqual(
    [last.type, last.result],
    ["workflow-result", known.fact === "over" ? resultOf(known) : null],
    known.id,
  );
}
