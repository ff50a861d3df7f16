/**
 * Guards of the service, each with the change that takes it away. Without it some simulation must go wrong.
 *
 * Not here, for no simulation shows them:
 * - A commit whose answer was lost is recognised at its second try (`waiting-commits.ts`). What it wrote is there either way: only who waits
 *   for that answer would be told that it is not known.
 * - A resume is asked for again when another process has taken the execution up (`requests.ts`). No step of the load waits beside one that
 *   works.
 * - A conversation that was found is one of the user who asks (`lookup.ts`). Where conversations have owners it is looked up among those of
 *   that user: the check is for where they have none.
 */
import type { Patch } from "../model/built.ts";
import type { Kinds } from "./plan.ts";

interface Guard extends Patch {
  readonly title: string;
  /** What its absence shows in: other clients and faults are left out, so that few seeds are enough. */
  readonly shows: Kinds;
  /** The first seed that is played, where few show it. */
  readonly seed?: number;
}

const RECOVERY = { file: "core/workflows/cluster/recovery.ts" } as const;
const MEMBERSHIP = { file: "core/storage/membership.ts" } as const;
const COMMITS = { file: "core/workflows/run/execution-rows.ts" } as const;
const REPLIES = { file: "core/storage/kept-replies.ts" } as const;
const ADMISSION = { file: "core/approvals/admission.ts" } as const;
const ANSWER = { file: "core/approvals/approvals.ts" } as const;
const UPKEEP = { file: "core/approvals/approvals.ts" } as const;
const ROWS = { file: "core/approvals/rows.ts" } as const;
const STOPS = { file: "core/workflows/cluster/requests.ts" } as const;
const ATTEMPTS = { file: "core/workflows/run/attempts.ts" } as const;
const FOLLOW = { file: "core/workflows/cluster/requests.ts" } as const;

// biome-ignore-start lint/suspicious/noTemplateCurlyInString: pieces of the source
export const GUARDS: readonly Guard[] = [
  {
    ...RECOVERY,
    title: "of two processes that take an execution up, one has it",
    shows: { clients: ["workflow"], faults: ["crash"] },
    from: "        expect: [[key, revision]],\n      }),",
    to: "      }),",
  },
  {
    ...RECOVERY,
    title: "what the process before wrote last is read",
    shows: { clients: ["run", "workflow"], faults: ["freeze"] },
    from: "const loaded = isBehind ? await loadExecution(store, found) : read;",
    to: "const loaded = read;",
  },
  {
    ...RECOVERY,
    title: "an execution of a process that lives is left alone",
    shows: { clients: ["workflow"], faults: ["freeze"] },
    from: "!(await isGone(process))) continue;",
    to: "false) continue;",
  },
  {
    ...RECOVERY,
    title: "an execution of a process that is gone is taken up",
    shows: { clients: ["run"], faults: ["crash"] },
    from: "!(await isGone(process))) continue;",
    to: "true) continue;",
  },
  {
    ...RECOVERY,
    title: "an execution that this process has given up is taken up again",
    shows: { clients: ["run", "workflow"], faults: ["network"] },
    from: "own ? live.has(number) || engine.abandoned.has(number) :",
    to: "own ? true :",
  },
  {
    ...MEMBERSHIP,
    title: "a process that was silent begins nothing before it has written a heartbeat",
    shows: { clients: ["workflow"], faults: ["freeze"] },
    from: "return this.#confirmedAt !== null && elapsedSince(this.#confirmedAt) < this.times.sessionTimeout;",
    to: "return true;",
  },
  {
    ...MEMBERSHIP,
    title: "a heartbeat expects the one before",
    shows: { clients: ["run"], faults: ["freeze"] },
    from: "        expect: [[key, this.#revision]],\n",
    to: "",
  },
  {
    ...MEMBERSHIP,
    title: "a process that was taken for gone gives up what it was at work on",
    shows: { clients: ["workflow"], faults: ["freeze"] },
    from: "for (const listener of this.#lostListeners) listener();",
    to: "",
  },
  {
    ...MEMBERSHIP,
    title: "a process that has become silent is taken for gone",
    shows: { clients: ["run"], faults: ["freeze"] },
    from: "...this.#silent.after(rows, now),",
    to: "",
  },
  {
    ...COMMITS,
    title: "an id that a client has chosen belongs to one execution",
    shows: { clients: ["workflow"], faults: ["jump"] },
    from: "expect: [...expect, [key, null]] };",
    to: "expect };",
  },
  {
    ...COMMITS,
    title: "an execution that waits is resumed once",
    shows: { clients: ["workflow"], faults: ["jump"] },
    from: "    [recordRow.key, recordRow.revision],\n    [openExecutionKey(start.number), null],\n",
    to: "",
  },
  {
    file: "core/workflows/run/execution-rows.ts",
    title: "commits of an execution are those of the process that has it",
    shows: { clients: ["run", "workflow"], faults: ["freeze"] },
    from: "return { ...commit, expect: [[openExecutionKey(this.#start.number), this.revision]] };",
    to: "return commit;",
  },
  {
    file: "core/workflows/run/waiting-commits.ts",
    title: "what a process has asked for an execution stays asked when it has lost that",
    shows: { clients: ["run", "workflow", "task"], faults: ["freeze"] },
    from: "if (!isRecorded || isConflict)",
    to: "if (!isRecorded)",
  },
  {
    ...REPLIES,
    title: "a request with the key of one that is at work waits for it",
    shows: { clients: ["once"], faults: ["crash"] },
    from: "return this.#membership.goneCheck()(process);",
    to: "return true;",
  },
  {
    ...REPLIES,
    title: "a request whose process is gone is carried out by the next one",
    shows: { clients: ["once"], faults: ["crash"] },
    from: "return this.#membership.goneCheck()(process);",
    to: "return false;",
  },
  {
    ...REPLIES,
    title: "a request with the key of one that is at work here waits for it",
    shows: { clients: ["once"], faults: ["jump"] },
    from: "if (known === undefined) break;",
    to: "if (true) break;",
  },
  {
    ...REPLIES,
    title: "a reply that cannot be written is written later",
    shows: { clients: ["once"], faults: ["cut", "network"] },
    from: "      this.#late.add(write);\n",
    to: "",
  },
  {
    ...REPLIES,
    title: "a claim of which it is not known whether it happened is removed",
    shows: { clients: ["once"], faults: ["network"] },
    from: "      this.#late.add(async () => {",
    to: "      void (async () => {",
  },
  {
    ...REPLIES,
    title: "a key belongs to one request",
    shows: { clients: ["once"], faults: ["jump"] },
    from: "if (row !== undefined && row.fingerprint !== fingerprint) throw keyReused();",
    to: "",
  },
  {
    file: "core/storage/collection.ts",
    title: "a record is changed by who has read it last",
    shows: { clients: ["direct"], faults: ["network"] },
    from: "expect = [[this.key(id), before?.revision ?? null]]",
    to: "expect = []",
  },
  {
    ...ANSWER,
    title: "the first answer is the decision",
    shows: { clients: ["direct"], faults: ["jump"] },
    from: "if (saysTheSame(record, body)) return record;",
    to: 'if (record.status !== "open") return record;',
  },
  {
    ...ANSWER,
    title: "nobody answers a question of another user",
    shows: { clients: ["direct"], faults: ["jump"] },
    from: " || !mayAccess(approver.principal, found.record.owner, undefined)",
    to: "",
  },
  {
    ...ADMISSION,
    title: "an approval of a direct call is used once",
    shows: { clients: ["direct"], faults: ["jump"] },
    from: '  used: "refuse",\n',
    to: '  used: "again",\n',
  },
  {
    ...ADMISSION,
    title: "a call that has used its approval runs again after a crash",
    shows: { clients: ["workflow"], faults: ["freeze", "crash"] },
    from: 'used: "again" }',
    to: 'used: "refuse" }',
  },
  {
    ...ADMISSION,
    title: "a call that was denied does not run",
    shows: { clients: ["direct"], faults: ["jump"] },
    from: '  denied: "refuse",\n',
    to: '  denied: "use",\n',
  },
  {
    ...ADMISSION,
    title: "a call that nobody has answered does not run",
    shows: { clients: ["direct"], faults: ["jump"] },
    from: '  open: "wait",\n',
    to: '  open: "use",\n',
  },
  {
    file: "core/tools/execute.ts",
    title: "a call that was approved begins in the process that has its run",
    shows: { clients: ["run", "workflow", "task"], faults: ["freeze"] },
    from: "  await origin.call.confirm?.();\n",
    to: "",
    seed: 214,
  },
  {
    file: "core/approvals/approvals.ts",
    title: "a call that goes on by itself waits for a store that is away",
    shows: { clients: ["run", "talk"], faults: ["network", "cut"] },
    from: 'if (approval?.record?.isKept ?? approval?.kind === "step")',
    to: "if (false)",
  },
  {
    ...UPKEEP,
    title: "an answer is told by others when its process dies",
    shows: { clients: ["run", "workflow"], faults: ["crash", "freeze"] },
    from: 'if ((await this.#tell(record)) === "later") isLate = true;',
    to: 'isLate ||= record.status === "open";',
  },
  {
    file: "core/workflows/approved-step.ts",
    title: "an answer that comes before the execution waits is kept",
    shows: { clients: ["run"], faults: ["network"] },
    from: 'if (!("loaded" in execution) || execution.found.openRow !== null) return "later";',
    to: 'if (!("loaded" in execution) || execution.found.openRow !== null) return "gone";',
  },
  {
    ...ROWS,
    title: "an answer is kept until it is taken",
    shows: { clients: ["run", "workflow"], faults: ["crash"] },
    from: "isUntaken(record) ? [APPROVAL_ANSWERS] : []",
    to: "[]",
  },
  {
    ...STOPS,
    title: "a stop is asked for again when another process has taken the execution up",
    shows: { clients: ["cancel"], faults: ["freeze"] },
    from: "if (openRow.revision !== asked && (await",
    to: "if (asked === null && (await",
  },
  {
    ...STOPS,
    title: "requests to stop are looked for, also when no notice comes",
    shows: { clients: ["run", "workflow"], faults: ["network"] },
    from: "    this.#reads.start();\n",
    to: "",
  },
  {
    ...ATTEMPTS,
    title: "the begin of a step is on disk before it works",
    shows: { clients: ["workflow"], faults: ["crash"] },
    from: "if (mustWrite || execution.unwritten > MAX_UNWRITTEN) await execution.flush();",
    to: "",
  },
  {
    ...ATTEMPTS,
    title: "a process that was silent asks before it works whether the execution is its own",
    shows: { clients: ["workflow"], faults: ["freeze"] },
    from: "if (lease !== null && !lease.isHeld()) await lease.confirm(lifetime.signal);",
    to: "",
  },
  {
    ...FOLLOW,
    title: "a follower reads each row of a journal once",
    shows: { clients: ["run"], faults: ["jump"] },
    from: "last = rows.at(-1)?.key ?? last;",
    to: "last = undefined;",
  },
  {
    ...FOLLOW,
    title: "a follower reads what an execution said last",
    shows: { clients: ["run"], faults: ["jump"] },
    from: "return await send(rest.tail);",
    to: "return;",
  },
  {
    ...FOLLOW,
    title: "a follower looks again when no notice comes",
    // No call is lost while its run ends: an answer that is late would excuse it.
    seed: 12_101,
    shows: { clients: ["run"], faults: ["network"] },
    from: "await watch.wait(pollInterval);",
    to: "await watch.wait(1e9);",
  },
  {
    file: "core/workflows/engine.ts",
    title: "what a process gives up while the store is away is looked for",
    shows: { clients: ["run", "workflow"], faults: ["network", "cut"] },
    from: 'if (isStoreUnavailable(error) || execution.lifetime.stopped?.kind === "lost") this.mayHaveUnowned = true;',
    to: "",
  },
  {
    file: "core/workflows/open.ts",
    title: "a look for executions that fails is repeated",
    shows: { clients: ["run", "workflow"], faults: ["network", "crash"] },
    from: "      this.#recoveryDue = true;\n      throw error;",
    to: "      throw error;",
  },
  {
    file: "core/agents/conversation/turn-claims.ts",
    title: "turns of one conversation come after each other",
    shows: { clients: ["talk"], faults: ["jump"] },
    from: "return this.#membership.goneCheck()(process);",
    to: "return true;",
  },
  {
    file: "core/agents/conversation/turn-claims.ts",
    title: "of two turns that take the place of one whose process is gone, one has it",
    shows: { clients: ["talk"], faults: ["crash", "freeze"] },
    from: "        expect: [[key, before?.revision ?? null]],\n",
    to: "",
  },
  {
    file: "core/a2a/task-rows.ts",
    title: "a message of A2A begins one task",
    shows: { clients: ["task"], faults: ["jump"] },
    from: "      expect.push([messageKey, null]);\n",
    to: "",
  },
  {
    file: "core/a2a/tasks.ts",
    title: "nobody sees a task of another user",
    shows: { clients: ["task"], faults: ["jump"] },
    from: "if (found === undefined || !mayAccess(principal, found.record.owner, undefined)) return undefined;",
    to: "if (found === undefined) return undefined;",
  },
];
// biome-ignore-end lint/suspicious/noTemplateCurlyInString: pieces of the source
