/** Commands on a store, whose output is lines of text: the command line runs them, or a service that has the store. */
import type { RunCommandRequest } from "../../generated/types.ts";
import type { Service } from "../app/service.ts";
import type { Context } from "../http/route.ts";
import { principalOf } from "../identity/principal.ts";
import { counted } from "../lib/counted.ts";
import { invalid, messageOf, ServiceError, unavailable } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { Reindexed } from "../memory/semantic/semantic.ts";
import type { Store } from "../storage/store.ts";
import { isRun, runIdOf } from "../workflows/journal/record.ts";
import {
  endExecution,
  findNamed,
  letRecoverAgain,
  type NamedExecution,
  unfinishedExecutions,
} from "../workflows/offline.ts";

type Say = (line: string) => unknown;

const WIDTHS = [26, 9, 5, 10, 10];

const columns = (texts: readonly string[]): string =>
  texts
    .map((text, index) => text.padEnd(WIDTHS[index] ?? 0))
    .join("  ")
    .trimEnd();

const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1_000],
] as const;

/** The age in the largest unit that fits. */
function ageOf(at: number): string {
  const age = Math.max(Date.now() - at, 0);
  const [unit, length] = UNITS.find(([, milliseconds]) => age >= milliseconds) ?? UNITS[3];
  return `${Math.floor(age / length)}${unit}`;
}

const PROGRESS_INTERVAL_MS = 1_000;

/** Says what happens while `rebuild` makes the index of a memory anew. */
export async function reindexMemory(
  name: string,
  say: Say,
  rebuild: (progress: (done: Reindexed) => void) => Promise<Reindexed>,
): Promise<void> {
  say(`memory ${name}: indexing`);
  const begun = performance.now();
  let last = begun;
  const done = await rebuild((soFar) => {
    const now = performance.now();
    if (now - last < PROGRESS_INTERVAL_MS) return;
    last = now;
    const rate = Math.round((soFar.indexed + soFar.refused) / ((now - begun) / 1_000));
    say(`memory ${name}: ${describe(soFar)}, ${rate} a second`);
  });
  say(`memory ${name}: done, ${describe(done)}`);
}

function describe({ indexed, refused }: Reindexed): string {
  const messages = `${counted(indexed, "messages")} indexed`;
  return refused === 0 ? messages : `${messages}, ${refused} refused by the embedding model`;
}

interface Place {
  readonly store: Store;
  /** Of the service that has the store, if one has: what runs there is left to it. */
  readonly call?: Context<Service>;
}

type Work = (place: Place, say: Say, asked: NamedExecution & { readonly reason?: string | undefined }) => Promise<void>;

export const EXECUTION_COMMANDS = {
  /** A header and one line per execution. */
  async "executions list"({ store }, say) {
    await say(columns(["ID", "STATUS", "AGE", "RECOVERIES", "BYTES", "WORKFLOW", "USER"]));
    for await (const { start, status, recoveries, bytes } of unfinishedExecutions(store)) {
      const { id, at, workflowId, userId } = start;
      await say(columns([id, status, ageOf(at), `${recoveries}`, `${bytes}`, workflowId, userId ?? ""]));
    }
  },
  async "executions end"({ store, call }, say, { reason = "ended by hand", ...named }) {
    const running = call && (await runningHere(call, named));
    if (running === undefined) {
      await endExecution(store, named, reason);
      say(`${named.id}: ended with the error ${JSON.stringify(reason)}`);
      return;
    }
    const { workflows, runs, isolated } = call!.service;
    const { id, workflowId, workflowName, userId } = running;
    const principal = principalOf(call!, isolated);
    if (isRun(workflowId)) await runs.for(principal, call!).cancel(workflowName, runIdOf(running), userId);
    else await workflows.for(principal).cancel(workflowId, id, reason, userId);
    say(`${id}: cancelled, as the service was running it`);
  },
  async "executions retry"({ store, call }, say, named) {
    if (call && (await runningHere(call, named))) throw invalid(`execution ${JSON.stringify(named.id)} runs`);
    await letRecoverAgain(store, named);
    say(`${named.id}: the next start takes it up`);
  },
} satisfies Record<string, Work>;

async function runningHere({ service: { store, workflows } }: Context<Service>, named: NamedExecution) {
  const { start } = await findNamed(store, named);
  return workflows.runsHere(start.number) ? start : undefined;
}

/** Stores whose indexes are made anew. */
const indexing = new WeakSet<Store>();

const IN_SERVICE: Record<RunCommandRequest["command"], Work> = {
  ...EXECUTION_COMMANDS,
  async reindex({ store, call }, say) {
    const semantic = [...call!.service.memories.values()].filter((memory) => memory.semantic !== undefined);
    if (semantic.length === 0) throw invalid("no memory has semantic search");
    if (indexing.has(store)) throw new ServiceError("conflict", "the indexes are made anew already");
    indexing.add(store);
    try {
      for (const memory of semantic)
        await reindexMemory(memory.name, say, (progress) => memory.semantic!.rebuild(progress));
    } finally {
      indexing.delete(store);
    }
  },
  async vacuum({ store: { file } }, say) {
    if (file === undefined) throw invalid("the store is no SQLite file");
    say(await file.shrink());
  },
};

/** @throws ServiceError `conflict` when the service has another store than the one that the command is about */
export async function runCommand(call: Context<Service>, body: RunCommandRequest): Promise<EventProducer> {
  const { store } = call.service;
  const { command, file, id = "", user, reason } = body;
  if (file !== undefined && (await store.file?.id()) !== file)
    throw new ServiceError("conflict", "the store of this service is another one");
  return (sink) => {
    const say: Say = (line) => sink.send(JSON.stringify({ type: "line", line }));
    return IN_SERVICE[command]({ store, call }, say, { id, user, reason }).catch((error) => {
      throw error instanceof ServiceError ? error : unavailable(messageOf(error));
    });
  };
}
