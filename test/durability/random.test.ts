/**
 * Workflows made by chance, of steps that work, compute, wait, fail and are tried again, one in another; processes that die at
 * moments chosen by chance. `PENSTOCK_SURVIVAL_ROUNDS` of them (default 12), from `PENSTOCK_SURVIVAL_SEED`.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { createRandom } from "../crash/model.ts";
import { checkEvents, SURVIVAL_PLUGINS, type Survival, survive, suspends } from "../support/survival.ts";
import { processesOf } from "../support/workflow-process.ts";

const ROUNDS = Number(process.env.PENSTOCK_SURVIVAL_ROUNDS ?? 12);
const SEED = Number(process.env.PENSTOCK_SURVIVAL_SEED ?? Date.now() % 1_000_000_007);

const PLUGINS = {
  ...SURVIVAL_PLUGINS,
  "steps/work.mjs": `export default { kind: "step", config: { type: "object", properties: { name: { type: "string" } } },
    execute: async ({ data, idempotencyKey, config, setState }) => {
      globalThis.penstockRuns.push([idempotencyKey, false]);
      await new Promise((resolve) => setImmediate(resolve));
      setState({ [config.name]: true });
      return { ...data, [config.name]: Object.keys(data ?? {}).length }; } };`,
  "steps/never.mjs": `export default { kind: "step", execute: ({ signal }) =>
      new Promise((resolve, reject) => signal.addEventListener("abort", () => reject(new Error("aborted")))) };`,
  "steps/fails.mjs": `export default { kind: "step", execute: ({ idempotencyKey }) => {
      globalThis.penstockRuns.push([idempotencyKey, false]);
      throw new Error("it never works"); } };`,
  "steps/fitful.mjs": `export default { kind: "step", execute: ({ data, idempotencyKey }) => {
      globalThis.penstockRuns.push([idempotencyKey, false]);
      const failed = (globalThis.penstockFailed ??= new Set());
      if (failed.has(idempotencyKey)) return { ...data, fitful: true };
      failed.add(idempotencyKey);
      throw new Error("not the first time"); } };`,
};

const TIMES = { heartbeatInterval: 2, leaseTimeout: 10, stopRequestInterval: 5 };

type Step = Record<string, unknown>;

/** Makes steps. `waits`: whether they may wait to be resumed. */
class Maker {
  readonly #random: () => number;
  readonly workflows: Record<string, { steps: Step[]; onError?: Step[] }> = {};
  #count = 0;
  constructor(random: () => number) {
    this.#random = random;
  }

  #below(bound: number): number {
    return Math.floor(this.#random() * bound);
  }

  #id(): string {
    return `s${this.#count++}`;
  }

  list(depth: number, waits: boolean): Step[] {
    return Array.from({ length: 1 + this.#below(3) }, () => this.#step(depth, waits));
  }

  #step(depth: number, waits: boolean): Step {
    const id = this.#id();
    const leaves: (() => Step)[] = [
      () => ({ andThen: { use: "work", with: { name: id } } }),
      () => ({ andThen: { use: "work", with: { name: id } } }),
      () => ({ andThen: { set: { from: id, before: "{{ data }}" } } }),
      () => ({ andThen: { use: "fitful" }, retry: { attempts: 1, delay: "1ms" } }),
      () => ({ andTap: this.#below(2) === 0 ? { use: "work", with: { name: id } } : { use: "fails" } }),
    ];
    if (waits) {
      leaves.push(() => ({ andThen: { use: "wants" } }));
      leaves.push(() => ({ andThen: { suspend: { reason: id, data: { id } } } }));
    }
    const holders: (() => Step)[] = [
      () => ({
        andWhen: {
          if: this.#below(2) === 0 ? "true" : "false",
          then: this.list(depth - 1, waits),
          else: this.list(depth - 1, waits),
        },
      }),
      () => ({ andWhen: { if: "false", then: this.list(depth - 1, waits) } }),
      () => ({ andAll: [this.list(depth - 1, waits), this.list(depth - 1, waits), this.list(depth - 1, waits)] }),
      () => ({ andRace: [this.list(depth - 1, waits), { id: this.#id(), andThen: { use: "fails" } }] }),
      () => ({
        andRace: [{ id: this.#id(), andThen: { use: "never" } }, this.list(depth - 1, false)],
      }),
      () => ({
        andAll: [
          [...this.list(depth - 1, waits), { id: this.#id(), andThen: { use: "fitful" } }],
          this.list(depth - 1, false),
        ],
        retry: { attempts: 3, delay: "1ms" },
      }),
      () => this.#sub({ steps: this.list(depth - 1, waits) }),
      () => ({ andThen: { use: "fails" }, onError: this.list(0, waits) }),
      () => ({ andAll: [[...this.list(0, waits), this.#fails()]], onError: this.list(0, waits) }),
      () =>
        this.#sub({
          steps: [...this.list(0, waits), this.#fails()],
          onError: this.list(0, waits),
        }),
      () => this.#sub({ steps: [...this.list(0, waits), this.#bails(), this.#fails()] }),
    ];
    const choices = depth > 0 && this.#random() < 0.5 ? holders : leaves;
    return { id, ...choices[this.#below(choices.length)]!() };
  }

  #fails(): Step {
    return { id: this.#id(), andThen: { use: "fails" } };
  }

  /** Beside a step that never ends, and maybe because another one has failed. */
  #bails(): Step {
    const bail = { id: this.#id(), bail: { if: "true", result: { bailed: "{{ data }}" } } };
    const last = this.#below(2) === 0 ? bail : { ...this.#fails(), onError: [bail] };
    const branches = [{ id: this.#id(), andThen: { use: "never" } }, last];
    return { id: this.#id(), [this.#below(2) === 0 ? "andAll" : "andRace"]: branches };
  }

  #sub(definition: { steps: Step[]; onError?: Step[] }): Step {
    const workflow = `w${this.#id()}`;
    this.workflows[workflow] = definition;
    return { andWorkflow: { workflow, input: { given: "{{ data }}" } } };
  }
}

test(`workflows made by chance come to the same end whenever their process dies: ${ROUNDS} rounds, seed ${SEED}`, async (t) => {
  let deaths = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const random = createRandom(SEED + round);
    const maker = new Maker(random);
    const steps = maker.list(3, true);
    // Some of its processes die before they have recorded anything.
    const workflows = { everything: { recoveries: 100, steps }, ...maker.workflows };
    const start = await processesOf(t, { workflows }, { plugins: PLUGINS });
    const go = (cuts: number[], options?: Survival) => {
      const store = createMemoryStore();
      (globalThis as { penstockFailed?: Set<string> }).penstockFailed = new Set();
      return survive(
        (seen) => start(seen, { processTimes: TIMES }),
        async () => store,
        cuts,
        options,
      );
    };
    const told = `seed ${SEED + round}: ${JSON.stringify(workflows)}`;
    try {
      const whole = await go([]);
      assert.equal(whole.status, "completed");
      checkEvents(whole.events);
      for (let again = 0; again < 6; again++) {
        const cuts = Array.from({ length: 1 + Math.floor(random() * 4) }, () =>
          Math.floor(random() * whole.commits.length),
        );
        deaths += cuts.length;
        const { status, result, events } = await go(cuts, {
          acknowledged: again % 2 === 0,
          ...(again < 3 ? {} : { disturb: suspends(random) }),
          // Then another process has to wait until the dead one has been silent for long.
          ...(again === 5 ? { kind: "shared" } : {}),
        });
        assert.deepEqual(
          { status, result },
          { status: whole.status, result: whole.result },
          `deaths after ${cuts} commits`,
        );
        checkEvents(events);
      }
    } catch (error) {
      throw new Error(`${(error as Error).message}\n${told}`, { cause: error });
    }
  }
  t.diagnostic(`${deaths} deaths`);
});
