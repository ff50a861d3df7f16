/** The workflows of a manifest on a given store, as one process has them: several such processes may follow or stand beside each other. */
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import type { Logger } from "pino";
import { EVERYTHING, NOBODY } from "../../core/identity/principal.ts";
import { type ServiceError, unavailable } from "../../core/lib/errors.ts";
import type { Membership } from "../../core/storage/membership.ts";
import type { Commit, Store } from "../../core/storage/store.ts";
import { openWorkflows, type ProcessTimes } from "../../core/workflows/open.ts";
import type { WorkflowAccess } from "../../core/workflows/scoped.ts";
import { silent } from "./agents.ts";
import { type DefinitionOptions, linked } from "./definitions.ts";

export const CALL = { user: null, caller: NOBODY, requestId: "test", logger: silent } as const;

export interface Process {
  readonly opened: Awaited<ReturnType<typeof openWorkflows>>;
  readonly access: WorkflowAccess;
}

interface ProcessOptions {
  logger?: Logger;
  processTimes?: ProcessTimes;
  membership?: Membership;
}

/** Compiles a manifest once; what it gives starts one process after the other. */
export async function processesOf(t: TestContext, manifest: string | object, options: DefinitionOptions = {}) {
  const { manifest: whole, loaded, parts, problems } = await linked(t, manifest, options);
  assert.deepEqual(problems, []);
  return async (store: Store, { logger = silent, ...rest }: ProcessOptions = {}): Promise<Process> => {
    const opened = await openWorkflows(whole, loaded, { ...parts, store, logger, ...rest });
    await opened.start();
    return { opened, access: opened.workflows.for(EVERYTHING) };
  };
}

export interface CutStore extends Store {
  /** Commits asked for since `arm`. */
  readonly commits: readonly Commit[];
  /** From now on so many commits happen; with the next one the process is as good as killed. */
  arm(commits: number, acknowledged?: boolean): void;
  /** Resolves when that has come. */
  readonly cut: Promise<void>;
  /** What the killed process still waits for fails, so that what is left of it in this process can be closed. */
  bury(): void;
}

/**
 * A store as a process sees it that is killed: from one commit on it never answers again. Unless the last commit is
 * acknowledged, it happens, and nobody hears of it.
 *
 * @param kind what the store says that it is
 */
export function cutStore(store: Store, kind = store.kind): CutStore {
  let left = Number.POSITIVE_INFINITY;
  let hears = true;
  let dead = false;
  let tell = () => {};
  const cut = new Promise<void>((resolve) => {
    tell = resolve;
  });
  const commits: Commit[] = [];
  let bury = () => {};
  const grave = new Promise<never>((_resolve, reject) => {
    bury = () => reject(unavailable("the process is dead"));
  });
  grave.catch(() => {});
  const never = () => grave;
  return {
    kind,
    commits,
    cut,
    bury,
    arm(count, acknowledged = true) {
      commits.length = 0;
      left = count;
      hears = acknowledged;
    },
    get: (key) => (dead ? never() : store.get(key)),
    getMany: (keys) => (dead ? never() : store.getMany(keys)),
    scan: (range) => (dead ? never() : store.scan(range)),
    tail: (tail) => (dead ? never() : store.tail(tail)),
    async commit(commit) {
      if (dead) return never();
      if (left === 0) {
        dead = true;
        tell();
        return never();
      }
      commits.push(commit);
      left--;
      if (left > 0 || hears) return store.commit(commit);
      dead = true;
      await store.commit(commit);
      tell();
      return never();
    },
    problem: () => store.problem(),
    close: async () => {},
  };
}

/** What a promise rejects with. */
export async function refusal(promise: Promise<unknown>): Promise<ServiceError> {
  return promise.then(
    () => assert.fail("it was not refused"),
    (error: ServiceError) => error,
  );
}
