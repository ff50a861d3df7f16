/** Workflows whose steps leave a trace outside the store, and what that trace must show after a crash. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Pool } from "undici";
import type { Store } from "../../core/storage/store.ts";
import { findExecution, loadExecution } from "../../core/workflows/journal/load.ts";
import type { Known } from "./workflow-clients.ts";

/** Steps write the key of every run to a file, which outlives the process: what is written is there after SIGKILL. */
export const STEP = `import { appendFileSync } from "node:fs";
export default { kind: "step", config: { type: "object", properties: { key: { type: "string" } } },
  execute: async ({ data, config, idempotencyKey }) => {
    appendFileSync("runs.log", idempotencyKey + "\\n");
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
    return config.key === undefined ? { ...data, n: data.n + 1 } : { [config.key]: data.n - 3 };
  } };`;

/** Without `store:`. */
export const MANIFEST = `
name: Crash
version: 1.0.0
logs: { level: warn }
plugins: [plugins]
workflows:
  straight:
    recoveries: 100 # its process is killed at any moment, through no fault of its own
    steps:
      - { id: one, andThen: { use: run } }
      - { id: two, andThen: { set: { n: "{{ data.n + 1 }}" } } }
      - { id: three, andThen: { use: run } }
      - { id: both, andAll: [{ id: a, andThen: { use: run, with: { key: a } } }, { id: b, andThen: { use: run, with: { key: b } } }] }
      - { id: last, andThen: { set: { n: "{{ steps.three.n }}", a: "{{ data.a }}", b: "{{ data.b }}" } } }
  approval:
    recoveries: 100
    steps:
      - { id: one, andThen: { use: run } }
      - { id: ask, andThen: { suspend: { reason: May it go on?, data: { n: "{{ data.n }}" } } } }
      - { id: two, andThen: { use: run } }
`;

/** What steps have done so far, against what was on record when they did it. */
export class Runs {
  readonly #file: string;
  readonly #open: () => Promise<Store | null>;
  readonly #done = new Set<string>();
  #offset = 0;
  total = 0;
  /** @param folder where processes run. @param open null: there is no store yet */
  constructor(folder: string, open: () => Promise<Store | null>) {
    this.#file = join(folder, "runs.log");
    this.#open = open;
  }

  /** To be called while nothing goes on: nothing that had been done at the last call has run since. Gives how many were cut off. */
  async check(executions: readonly Known[]): Promise<number> {
    const text = existsSync(this.#file) ? readFileSync(this.#file, "utf8") : "";
    for (const key of text.slice(this.#offset).split("\n")) {
      assert.ok(!this.#done.has(key), `${key} was on record, and ran again`);
      this.total += 1;
    }
    this.#offset = text.length;
    const store = await this.#open();
    if (store === null) return 0;
    let running = 0;
    try {
      for (const { id } of executions) {
        const found = await findExecution(store, id);
        const loaded = found === null ? null : await loadExecution(store, found);
        if (found?.openRow) running += 1;
        for (const step of loaded?.state.steps.values() ?? []) {
          if (step.status === "done") this.#done.add(`${id}:${step.path}`);
        }
      }
    } finally {
      await store.close();
    }
    return running;
  }
}

/** What a process left is taken up, and comes to its end. */
export async function nothingRuns(pool: Pool, patience = 30_000): Promise<void> {
  for (const end = Date.now() + patience; ; await sleep(20)) {
    const reply = await pool.request({ method: "GET", path: "/workflows/executions?status=running&limit=100" });
    const { data } = (await reply.body.json()) as { data: { id: string }[] };
    if (data.length === 0) return;
    assert.ok(Date.now() < end, `still running: ${data.map(({ id }) => id)}`);
  }
}
