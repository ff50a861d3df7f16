/**
 * Processes that die one after the other in the middle of one execution, and what must be true of it then. Everything is real but
 * the moment of death, which the store chooses.
 */
import assert from "node:assert/strict";
import { setImmediate } from "node:timers/promises";
import type { Store } from "../../core/storage/store.ts";
import { findExecution, loadExecution } from "../../core/workflows/journal/load.ts";
import type { WorkflowAccess } from "../../core/workflows/scoped.ts";
import { collectEvents } from "./event-sink.ts";
import { CALL, type CutStore, cutStore, type Process } from "./workflow-process.ts";

const ID = "the-one";

/** `runs` holds what every run was told: the key of the step, and whether it was resumed. */
export const SURVIVAL_PLUGINS = {
  "steps/count.mjs": `export default { kind: "step", config: { type: "object", properties: { key: { type: "string", default: "n" } } },
    execute: async ({ data, idempotencyKey, config, state, setState }) => {
      globalThis.penstockRuns.push([idempotencyKey, false]);
      await new Promise((resolve) => setImmediate(resolve));
      setState({ count: (state.count ?? 0) + 1 });
      return { ...data, [config.key]: (data?.[config.key] ?? 0) + 1 }; } };`,
  "steps/flaky.mjs": `export default { kind: "step", execute: ({ data, idempotencyKey, attempt }) => {
      globalThis.penstockRuns.push([idempotencyKey, false, attempt]);
      if (attempt < 3) throw new Error("not yet");
      return { ...data, flaky: attempt }; } };`,
  "steps/wants.mjs": `export default { kind: "step", execute: ({ data, idempotencyKey, suspend, resumeData }) => {
      globalThis.penstockRuns.push([idempotencyKey, resumeData !== undefined]);
      return resumeData === undefined ? suspend("Wants", { data }) : { ...data, answer: resumeData }; } };`,
};

type Run = [key: string, resumed: boolean, attempt?: number];
const runs: Run[] = [];
(globalThis as { penstockRuns?: Run[] }).penstockRuns = runs;

/** Called before everything that a client does. */
type Disturb = (access: WorkflowAccess) => void;

const OUTSIDE = "from outside";

/** Suspends from outside, some turns of the event loop later, most of the time. */
export const suspends =
  (random: () => number): Disturb =>
  (access) => {
    if (random() < 0.3) return;
    const suspend = async () => {
      for (let turns = Math.floor(random() * 12); turns > 0; turns--) await setImmediate();
      await access.suspend("everything", ID, OUTSIDE);
    };
    suspend().catch(() => {});
  };

/** What a client does with the workflow `everything`: starts it unless it is there, waits, and resumes it until it is over. Gives how it ended. */
async function finish({ access, opened }: Process, disturb: Disturb): Promise<{ status: string; result: unknown }> {
  for (;;) {
    disturb(access);
    const state = await access.state("everything", ID).catch(() => null);
    if (state === null) {
      await access.execute("everything", { input: { who: "Ada", n: 0 }, options: { executionId: ID } }, CALL);
    } else if (state.status === "running") await (opened.engine.live.get(ID)?.settled ?? setImmediate());
    else if (state.status === "suspended") {
      const { stepId, reason } = state.suspension!;
      const body = reason === OUTSIDE ? {} : { resumeData: { [`answer-${stepId}`]: stepId } };
      await access.resume("everything", ID, body, CALL);
    } else {
      const page = await access.executions({ limit: 10, offset: 0 });
      const [record] = JSON.parse(await page.whole()) as { status: string; output: unknown }[];
      return { status: record!.status, result: record!.output };
    }
  }
}

/** Steps by what the journal says of them. */
async function onRecord(
  store: Store,
): Promise<Record<"begun" | "done" | "waiting" | "failed", Set<string>> & { tries: number }> {
  const found = await findExecution(store, ID);
  const loaded = found === null ? null : await loadExecution(store, found);
  const steps = [...(loaded?.state.steps.values() ?? [])];
  const keys = (status: string) =>
    new Set(steps.filter((step) => step.status === status).map(({ path }) => `${ID}:${path}`));
  const begun = new Set(steps.map(({ path }) => `${ID}:${path}`));
  const [done, waiting, failed] = [keys("done"), keys("waiting"), keys("failed")];
  return { begun, done, waiting, failed, tries: loaded?.state.steps.get("flaky")?.tries ?? 0 };
}

export interface Survival {
  /** Whether a process hears of the last commit that it gets done. */
  acknowledged?: boolean;
  disturb?: Disturb;
  /** What the store says that it is. */
  kind?: string;
  /** Paths of steps that fail for good: they are not tried again once that is on record. */
  final?: readonly string[];
}

/** Kills one process after the other, then lets one finish. `cuts`: commits that each one gets done. */
export async function survive(
  start: (store: Store) => Promise<Process>,
  reopen: () => Promise<Store>,
  cuts: readonly number[],
  { acknowledged = true, disturb = () => {}, kind = "sqlite", final = [] }: Survival = {},
) {
  let store = await reopen();
  for (const cut of cuts) {
    await expectNothingTwice(store, final, async () => {
      const cutting: CutStore = cutStore(store, kind);
      const process = await start(cutting);
      cutting.arm(cut, acknowledged);
      const finished = finish(process, disturb);
      await Promise.race([cutting.cut, finished]);
      finished.catch(() => {});
      // What still moves in the dead process shows.
      await new Promise((resolve) => setTimeout(resolve, 2));
    });
    store = await reopen();
  }
  return expectNothingTwice(store, final, async () => {
    const last = cutStore(store, kind);
    const process = await start(last);
    last.arm(Number.POSITIVE_INFINITY);
    const result = await finish(process, disturb);
    const events = await collectEvents(await process.access.attach("everything", ID, 0));
    await process.opened.close();
    return { ...result, events, commits: last.commits };
  });
}

async function expectNothingTwice<T>(store: Store, final: readonly string[], work: () => Promise<T>): Promise<T> {
  const { done, waiting, failed, tries } = await onRecord(store);
  const over = new Set(final.map((path) => `${ID}:${path}`).filter((key) => failed.has(key)));
  runs.length = 0;
  const result = await work();
  const { begun } = await onRecord(store);
  for (const [key] of runs) assert.ok(begun.has(key), `${key} ran, and that it began is not on record`);
  for (const [key, resumed, attempt] of runs) {
    assert.ok(!done.has(key), `${key} is on record, and ran again`);
    assert.ok(!over.has(key), `${key} has failed on record, and ran again`);
    assert.ok(resumed || !waiting.has(key), `${key} waits, and ran again without an answer`);
    if (attempt !== undefined) assert.ok(attempt > tries, `try ${attempt} of ${key} is on record, and was made again`);
  }
  return result;
}

/** One step has one end; the numbers have no gap; the last event is the result. */
export function checkEvents(events: { id: number; data: { type: string; from?: string; status?: string } }[]): void {
  assert.deepEqual(
    events.map(({ id }) => id),
    events.map((_event, index) => index + 1),
  );
  const ends = events.filter(({ data }) => data.type === "step-complete").map(({ data }) => data.from);
  assert.equal(new Set(ends).size, ends.length, `a step ended twice: ${ends}`);
  assert.equal(events.at(-1)!.data.type, "workflow-result");
  assert.equal(events.at(-1)!.data.status, "completed");
}
