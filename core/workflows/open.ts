/** Builds the workflow engine from the manifest: compiles the workflows, recovers executions at boot, and shuts down. */
import type { Logger } from "pino";
import { isIsolated } from "../identity/principal.ts";
import { messageOf, type Problem } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import type { LoadedManifest } from "../manifest/load.ts";
import { formatPath, type Manifest } from "../manifest/manifest.ts";
import type { CountRefusal } from "../observability/metrics/meters.ts";
import type { SpanOrigin } from "../observability/span.ts";
import { EXECUTION_SEQUENCE, EXECUTIONS, OPEN_EXECUTIONS, OWN_EXECUTION_NAMES } from "../storage/keys.ts";
import { Membership, type MembershipTimes } from "../storage/membership.ts";
import { createSequence } from "../storage/sequence.ts";
import { isShared, isVolatile, openIdSpaces, type Store } from "../storage/store.ts";
import { recoverExecutions } from "./cluster/recovery.ts";
import { StopRequests, stopsAsked } from "./cluster/requests.ts";
import { compileDefinition } from "./compile/definition.ts";
import type { LinkedParts, WorkflowDefinition } from "./definition/definition.ts";
import { Definitions } from "./definition/definitions.ts";
import { describeWorkflow } from "./definition/describe.ts";
import { type Pinned, pin } from "./definition/pinned.ts";
import { Engine } from "./engine.ts";
import { ExecutionLookup } from "./list/lookup.ts";
import { ExecutionRetention } from "./retention.ts";
import { WorkflowAccess, type Workflows } from "./scoped.ts";

/*
 * What a process of a shared store does about executions of the other processes: it recovers those of dead processes, and carries out
 * the stop requests for its own. A single execution needs no lease of its own: its open row names its process, and every commit to its
 * journal expects that row to be unchanged.
 */

/** All in milliseconds. */
export interface ProcessTimes extends MembershipTimes {
  /** Pause between two reads of the stop requests that other processes have written. */
  readonly stopRequestInterval: number;
}

const STOP_REQUEST_INTERVAL_MS = 250;
/** Pause between two checks whether there is anything to recover; the check is cheap. */
const CHECK_INTERVAL_MS = 250;
/** After this many heartbeats all open executions are read, even if every process lives: usually there is nothing to recover. */
const HEARTBEATS_PER_FULL_SCAN = 60;

class Processes {
  readonly #engine: Engine;
  readonly #membership: Membership;
  readonly #stopRequests: StopRequests;
  readonly #recovery: Interval;
  readonly #fullScanInterval: number;
  /** Whether there may be executions to recover that no scan has looked for yet. */
  #recoveryDue = true;
  #lastScan = Number.NEGATIVE_INFINITY;
  #stopped = false;

  constructor(engine: Engine, membership: Membership, stopRequestInterval = STOP_REQUEST_INTERVAL_MS) {
    const { heartbeatInterval } = membership.times;
    this.#engine = engine;
    this.#membership = membership;
    this.#fullScanInterval = HEARTBEATS_PER_FULL_SCAN * heartbeatInterval;
    this.#stopRequests = new StopRequests(engine, stopRequestInterval);
    this.#recovery = new Interval(
      Math.min(CHECK_INTERVAL_MS, heartbeatInterval),
      () => this.#recover(),
      (error) =>
        engine.logger.warn({ err: error }, `what other processes left could not be taken over: ${messageOf(error)}`),
    );
    membership.onGone(() => {
      this.#recoveryDue = true;
    });
  }

  async start(): Promise<void> {
    await this.#membership.start();
    // The boot does not wait for executions that have to wait for a free slot.
    await Promise.race([this.#recovery.begin(), this.#engine.capacity.full]);
    await this.#stopRequests.start();
  }

  /** Stops recovering executions, but keeps the lease. */
  stopRecovering(): void {
    this.#stopped = true;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all([this.#recovery.stop(), this.#stopRequests.close()]);
  }

  /** Recovers the executions of dead processes. */
  async #recover(): Promise<void> {
    if (!(await this.#isDue()) || this.#stopped) return;
    this.#recoveryDue = false;
    this.#engine.mayHaveUnowned = false;
    this.#lastScan = performance.now();
    try {
      await this.#recoverAll();
    } catch (error) {
      this.#recoveryDue = true;
      throw error;
    }
  }

  async #isDue(): Promise<boolean> {
    const { mayHaveUnowned, leftAlone, store } = this.#engine;
    if (this.#recoveryDue || mayHaveUnowned) return true;
    if (performance.now() - this.#lastScan >= this.#fullScanInterval) return true;
    // No process runs the executions that were left alone, but they can be stopped.
    return leftAlone.size > 0 && (await stopsAsked(store, leftAlone)).length > 0;
  }

  async #recoverAll(): Promise<void> {
    const count = await recoverExecutions(this.#engine, this.#membership.goneCheck(), () => this.#stopped);
    if (count > 0) this.#engine.logger.info({ executions: count }, "recovered executions of a process that is gone");
  }
}

/** How many ended executions `memory:` keeps, because they are in the heap. */
const IN_MEMORY = { maxEnded: 20_000 };

interface WorkflowParts {
  readonly store: Store;
  readonly logger: Logger;
  readonly processTimes?: ProcessTimes | undefined;
  /** The processes that share the store; default: a group that only the workflow engine of this process joins, if the store is shared. */
  readonly membership?: Membership | null;
  readonly trace?: SpanOrigin | undefined;
  /** Called for each execution that a limit refuses. */
  readonly refused?: CountRefusal;
}

/** What the workflows of another manifest are linked with. */
type NextParts = LinkedParts & Pick<WorkflowParts, "trace">;

interface OpenedWorkflows {
  engine: Engine;
  workflows: Workflows;
  problems: Problem[];
  /** Compiles the workflows of another manifest; nothing changes before `apply`. */
  adopt(
    manifest: Manifest,
    loaded: LoadedManifest,
    parts: NextParts,
  ): {
    problems: Problem[];
    /** Stores the definitions, so that executions can be pinned to them. */
    begin(): Promise<void>;
    apply(): void;
  };
  /** Recovers the executions that an earlier process left running. */
  start(): Promise<void>;
  /** Waits until nothing runs any more, at most `timeoutMs`. */
  idle(timeoutMs: number): Promise<void>;
  /** Interrupts the executions that still run. They continue after the next start. */
  close(): Promise<void>;
}

export async function openWorkflows(
  manifest: Manifest,
  loaded: LoadedManifest,
  {
    store,
    logger,
    processTimes,
    membership = isShared(store) ? new Membership(store, { logger, times: processTimes }) : null,
    trace,
    refused,
    ...parts
  }: LinkedParts & WorkflowParts,
): Promise<OpenedWorkflows> {
  const { problems, ...settings } = compileSettings(manifest, loaded, { store, trace, ...parts });
  const { definitions } = settings;
  const sequence = await createSequence(store, EXECUTION_SEQUENCE, [EXECUTIONS, OPEN_EXECUTIONS]);
  const spaces = await openIdSpaces(store, isIsolated(manifest), OWN_EXECUTION_NAMES);
  const engine = new Engine({ ...settings, store, sequence, spaces, logger, membership, refused });
  const retention = new ExecutionRetention(store, {
    ...retentionPeriods(manifest),
    logger,
    ...(isVolatile(store) && IN_MEMORY),
    fits: (fit) => {
      engine.capacity.hasRoom = fit;
    },
  });
  /** Set when the shutdown starts: executions that still wait for a free slot are left to the next process. */
  let isStopping = false;
  const beginShutdown = () => {
    isStopping = true;
    processes?.stopRecovering();
    engine.capacity.releaseWaiting();
  };
  const recover = async () => {
    const executions = await recoverExecutions(
      engine,
      () => true,
      () => isStopping,
    );
    if (executions > 0) logger.info({ executions }, "executions that were interrupted go on");
  };
  let recovering = Promise.resolve();
  const processes = membership === null ? null : new Processes(engine, membership, processTimes?.stopRequestInterval);
  return {
    engine,
    workflows: {
      list: () => engine.list(),
      detail: (id) => engine.detail(id),
      runsHere: (number) => engine.liveNumbers().has(number),
      for: (principal, charge) =>
        new WorkflowAccess(engine, principal, new ExecutionLookup(engine, principal, undefined, charge)),
    },
    problems,
    adopt(next, nextLoaded, nextParts) {
      const { problems, ...settings } = compileSettings(next, nextLoaded, { store, ...nextParts });
      return {
        problems,
        begin: () => settings.definitions.store(),
        apply() {
          engine.adopt(settings);
          retention.adopt(retentionPeriods(next));
        },
      };
    },
    async start() {
      await definitions.store();
      if (processes !== null) await processes.start();
      else {
        const recovered = recover();
        recovering = recovered.catch((error) => {
          logger.error({ err: error }, `executions that were interrupted wait for the next start: ${messageOf(error)}`);
        });
        // The boot does not wait for executions that have to wait for a free slot.
        await Promise.race([recovered, engine.capacity.full]);
      }
      retention.start();
    },
    idle(timeoutMs) {
      beginShutdown();
      return engine.idle(timeoutMs);
    },
    async close() {
      beginShutdown();
      await recovering;
      await retention.close();
      // Before the engine closes, so that this process does not recover what the engine interrupts.
      await processes?.stop();
      await engine.close();
      // Released early, so that other processes need not wait for the rest of the shutdown.
      await membership?.release();
    },
  };
}

/** The settings of the engine that come from the manifest. */
function compileSettings(
  manifest: Manifest,
  loaded: LoadedManifest,
  { store, trace, ...parts }: NextParts & Pick<WorkflowParts, "store">,
) {
  const { workflows, problems } = compileWorkflows(manifest, loaded, parts);
  const definitions = new Definitions(store, workflows, (pinned) => {
    const compiled = compileDefinition(pinned, parts);
    if ("definition" in compiled) return compiled.definition;
    const wrong = compiled.problems.map(({ path, message }) => `${formatPath(path)}: ${message}`);
    return { missing: [...compiled.missing, ...wrong] };
  });
  const described = new Map(
    Object.entries(manifest.workflows).map(([id, workflow]) => [id, describeWorkflow(id, workflow)]),
  );
  return { definitions, described, problems, trace, limits: manifest.server.limits };
}

/** Retention in milliseconds, by workflow id, and for workflows that the manifest does not have. */
function retentionPeriods({ workflows, history }: Manifest) {
  const retention = (own: unknown) => (own ?? history.retention) as number;
  const periods = Object.entries(workflows).map(([id, workflow]) => [id, retention(workflow.retention)] as const);
  return { workflows: new Map(periods), otherWorkflows: history.retention };
}

// Pins and compiles the workflows of the manifest.

export interface CompiledWorkflow extends Pinned {
  readonly definition: WorkflowDefinition;
}

interface CompiledWorkflows {
  /** Workflows by id, in the order of the manifest. */
  workflows: Map<string, CompiledWorkflow>;
  problems: Problem[];
}

/**
 * Leaves out, without a problem, workflows that name something which does not exist: `checkReferences` reports it.
 *
 * @param manifest the whole manifest, or the valid part of it
 */
export function compileWorkflows(
  manifest: Pick<Manifest, "workflows">,
  loaded: Pick<LoadedManifest, "referenceAt">,
  parts: LinkedParts,
): CompiledWorkflows {
  const workflows = new Map<string, CompiledWorkflow>();
  const problems = new Map<string, Problem>();
  for (const id of Object.keys(manifest.workflows)) {
    const pinned = pin(id, manifest, loaded);
    const compiled = compileDefinition(pinned.pinned, parts);
    if ("definition" in compiled) {
      const { definition } = compiled;
      workflows.set(id, { ...pinned, definition });
      definition.meter?.steps.declare(definition.outline.keys());
    }
    // A workflow that others call is compiled once with each of them, so problems are deduplicated.
    else for (const problem of compiled.problems) problems.set(JSON.stringify(problem), problem);
  }
  return { workflows, problems: [...problems.values()] };
}
