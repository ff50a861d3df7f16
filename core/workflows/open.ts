/** Builds the workflow engine from the manifest: compiles the workflows, recovers executions at boot, and shuts down. */
import type { Logger } from "pino";
import { isIsolated } from "../identity/principal.ts";
import { messageOf } from "../lib/errors.ts";
import type { Problem } from "../lib/problem.ts";
import { formatPath } from "../manifest/issues.ts";
import type { LoadedManifest } from "../manifest/load.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { CountRefusal } from "../observability/metrics/limit-meters.ts";
import type { SpanOrigin } from "../observability/span.ts";
import { openIdSpaces } from "../storage/id-spaces.ts";
import { EXECUTION_SEQUENCE, EXECUTIONS, OPEN_EXECUTIONS, OWN_EXECUTION_NAMES } from "../storage/keys.ts";
import { Membership } from "../storage/membership.ts";
import { createSequence } from "../storage/sequence.ts";
import { isShared, isVolatile } from "../storage/sharing.ts";
import type { Store } from "../storage/store.ts";
import { Processes, type ProcessTimes } from "./cluster/processes.ts";
import { recoverExecutions } from "./cluster/recovery.ts";
import { compileDefinition } from "./compile/definition.ts";
import { compileWorkflows } from "./compile/workflows.ts";
import { Definitions } from "./definition/definitions.ts";
import { describeWorkflow } from "./definition/describe.ts";
import type { LinkedParts } from "./definition/linking.ts";
import { Engine } from "./engine.ts";
import { ExecutionLookup } from "./list/lookup.ts";
import { ExecutionRetention } from "./retention.ts";
import { ScopedWorkflows } from "./scoped.ts";
import type { Workflows } from "./workflows.ts";

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
      for: (principal, charge) =>
        new ScopedWorkflows(engine, principal, new ExecutionLookup(engine, principal, undefined, charge)),
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
