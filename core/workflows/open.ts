/** The workflows of a service, from the manifest to an engine that runs them, and back to rest. */
import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import { isIsolated } from "../identity/principal.ts";
import { messageOf } from "../lib/errors.ts";
import type { Problem } from "../lib/problem.ts";
import { formatPath } from "../manifest/issues.ts";
import type { LoadedManifest } from "../manifest/load.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { SpanOrigin } from "../observability/span.ts";
import { openIdSpaces } from "../storage/id-spaces.ts";
import { EXECUTION_SEQUENCE, OWN_EXECUTION_NAMES } from "../storage/keys.ts";
import { createSequence } from "../storage/sequence.ts";
import { isVolatile } from "../storage/sharing.ts";
import type { Store } from "../storage/store.ts";
import { Processes, type ProcessTimes } from "./cluster/processes.ts";
import { recoverExecutions } from "./cluster/recovery.ts";
import { compileDefinition } from "./compile/definition.ts";
import { compileWorkflows } from "./compile/workflows.ts";
import { Definitions } from "./definition/definitions.ts";
import { describeWorkflow } from "./definition/describe.ts";
import type { Parts } from "./definition/linking.ts";
import { Engine } from "./engine.ts";
import { ExecutionRetention } from "./retention.ts";

/** Ended executions that `memory:` keeps: what it holds is in the heap. */
const MOST_IN_MEMORY = 20_000;

export interface OpenedWorkflows {
  engine: Engine;
  problems: Problem[];
  /** Takes up what an earlier process left running. */
  start(): Promise<void>;
  /** Waits until nothing runs, at most some milliseconds. */
  idle(patience: number): Promise<void>;
  /** What still runs stands still; it goes on after the next start. */
  close(): Promise<void>;
}

export async function openWorkflows(
  manifest: Manifest,
  loaded: LoadedManifest,
  {
    store,
    logger,
    processTimes,
    trace,
    ...parts
  }: Parts & { store: Store; logger: Logger; processTimes?: ProcessTimes; trace?: SpanOrigin | undefined },
): Promise<OpenedWorkflows> {
  const { workflows, problems } = compileWorkflows(manifest, loaded, parts);
  const definitions = new Definitions(store, workflows, (pinned) => {
    const compiled = compileDefinition(pinned, parts);
    if ("definition" in compiled) return compiled.definition;
    return {
      missing: [
        ...compiled.missing,
        ...compiled.problems.map(({ path, message }) => `${formatPath(path)}: ${message}`),
      ],
    };
  });
  const described = new Map(
    Object.entries(manifest.workflows).map(([id, workflow]) => [id, describeWorkflow(id, workflow)]),
  );
  const sequence = await createSequence(store, EXECUTION_SEQUENCE);
  const spaces = await openIdSpaces(store, isIsolated(manifest), OWN_EXECUTION_NAMES);
  const most = manifest.server.limits.executions;
  const kept = { store, sequence, spaces, definitions, described };
  const engine = new Engine({ ...kept, logger, process: randomUUID(), most, trace });
  const retention = new ExecutionRetention(store, {
    workflows: retentionsOf(manifest),
    otherwise: manifest.history.retention,
    logger,
    ...(isVolatile(store) && { most: MOST_IN_MEMORY }),
  });
  /** Set from the signal to stop on: what waits for a place to go on is left to the next process. */
  let over = false;
  const retire = () => {
    over = true;
    processes?.retire();
    engine.room.release();
  };
  const recover = async () => {
    const executions = await recoverExecutions(
      engine,
      () => true,
      () => over,
    );
    if (executions > 0) logger.info({ executions }, "executions that were interrupted go on");
  };
  let recovering = Promise.resolve();
  const processes = engine.around.shared ? new Processes(engine, processTimes) : null;
  return {
    engine,
    problems,
    async start() {
      await definitions.keep();
      if (processes !== null) await processes.start();
      else {
        const recovered = recover();
        recovering = recovered.catch((error) => {
          logger.error({ err: error }, `executions that were interrupted wait for the next start: ${messageOf(error)}`);
        });
        // Those for which there is no place yet keep nobody waiting but each other.
        await Promise.race([recovered, engine.room.full]);
      }
      retention.start();
    },
    idle(patience) {
      retire();
      return engine.idle(patience);
    },
    async close() {
      retire();
      await recovering;
      await retention.close();
      // First of all, so that it takes up nothing of what the engine lets go.
      await processes?.stop();
      await engine.close();
      await processes?.leave();
    },
  };
}

/** Milliseconds by id. */
function retentionsOf({ workflows, history }: Manifest): Map<string, number> {
  return new Map(Object.entries(workflows).map(([id, { retention }]) => [id, retention ?? history.retention]));
}
