/** The inbox of approvals: tools ask it whether a call may run, and people list and answer its questions. */
import type { Logger } from "pino";
import { defaults } from "../../generated/defaults.ts";
import type { AnswerApprovalRequest, Approval, ApprovalsQuery, ApprovalsReply } from "../../generated/types.ts";
import {
  mayAccess,
  type Principal,
  permittedUser,
  principalOf,
  type Requester,
  seesEverything,
  userIdOf,
} from "../identity/principal.ts";
import { canonicalJson } from "../lib/canonical-json.ts";
import { type Clock, storedTime, systemTime } from "../lib/clock.ts";
import { invalid, messageOf, notFound, quoted, ServiceError, unavailable } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { UserBound } from "../lib/user-bound.ts";
import { whileAway } from "../storage/away.ts";
import { RECORDS_PER_PAGE } from "../storage/collection.ts";
import { changeInTurn, type Store, unlessConflict } from "../storage/store.ts";
import type { ApprovalInbox, AskedCall, Tool } from "../tools/tool.ts";
import { admit } from "./admission.ts";
import {
  type ApprovalRecord,
  type ApprovalStatus,
  approvalView,
  approvedInput,
  isAwaited,
  MAX_INPUT_CHARACTERS,
  type WithdrawalReason,
} from "./record.ts";
import { APPROVAL_ANSWERS, ApprovalRows, type FoundApproval, OF_EXECUTIONS } from "./rows.ts";

// Background work on approvals: marks those without an answer as expired, removes old ones, and notifies steps and runs of answers.

const ROUND_INTERVAL_MS = 5_000;
/** Delay after the first round with an undelivered answer, for example because the step is about to suspend; it doubles each time. */
const RETRY_DELAY_MS = 50;

/** How often, and how many open questions at a time, are compared with what has asked them. */
const LOOK_INTERVAL_MS = 15_000;
const LOOKED_AT = 8;

/** `later`: the answer is not delivered yet, whether the step was resumed or cannot be resumed so far. `gone`: nothing waits for it. */
export type Delivery = "later" | "gone";
/** What waits for answers. */
interface Awaiter {
  /** Notifies it of its answer: resumes the step, or the run. */
  tellAnswer(record: ApprovalRecord): Promise<Delivery>;
  /** Whether it waits no more. @param isStored by what is in the store alone */
  hasEnded(record: ApprovalRecord, isStored?: true): Promise<boolean>;
}

const withdrawn = (reason: WithdrawalReason, decidedAt = storedTime()) =>
  ({ status: "withdrawn", decidedAt, reason }) as const;

/** Expires what is due, and removes approvals whose retention is over: at most one page. @returns their number */
export async function settleDue(rows: ApprovalRows, clock: Clock = systemTime): Promise<number> {
  const due = await rows.due(clock());
  for (const found of due) {
    if (found.record.status === "open") await rows.expire(found);
    else await unlessConflict(rows.remove(found));
  }
  return due.length;
}

class Upkeep {
  readonly #rows: ApprovalRows;
  readonly #logger: Logger;
  readonly #rounds: Interval;
  readonly #looks: Interval;
  readonly #endWatch: (() => void) | undefined;
  readonly awaiter: Awaiter;
  /** The key of the last row that was looked at. */
  #looked = OF_EXECUTIONS;
  #retry: NodeJS.Timeout | undefined;
  #retryDelay = RETRY_DELAY_MS;

  constructor(rows: ApprovalRows, awaiter: Awaiter, logger: Logger) {
    this.#rows = rows;
    this.awaiter = awaiter;
    this.#logger = logger;
    const failed = (error: unknown) =>
      logger.warn({ err: error }, `approvals could not be looked through: ${messageOf(error)}`);
    this.#rounds = new Interval(ROUND_INTERVAL_MS, () => this.#round(), failed);
    this.#looks = new Interval(LOOK_INTERVAL_MS, () => this.#look(), failed);
    this.#looks.start();
    this.#endWatch = rows.store.watch?.(APPROVAL_ANSWERS, () => this.hurry());
    this.#rounds.start(0);
  }

  /** Tells what waits for an answer of it at once. What cannot be told yet is told in a round. Never rejects. */
  async deliver(record: ApprovalRecord): Promise<void> {
    if (!this.#rounds.signal.aborted && (await this.#tell(record)) === "later") this.hurry();
  }

  /** Starts a round now, because a step's question has been answered. */
  hurry(): void {
    this.#retryDelay = RETRY_DELAY_MS;
    this.#rounds.hurry();
  }

  async stop(): Promise<void> {
    this.#endWatch?.();
    await Promise.all([this.#rounds.stop(), this.#looks.stop()]);
    clearTimeout(this.#retry);
  }

  /** Withdraws what is still open of executions that have ended: who ended them may have died before it did. */
  async #look(): Promise<void> {
    const rows = await this.#rows.store.scan({ prefix: OF_EXECUTIONS, after: this.#looked, limit: LOOKED_AT });
    this.#looked = rows.length < LOOKED_AT ? OF_EXECUTIONS : rows.at(-1)!.key;
    for (const found of await this.#rows.readRows(rows))
      if (found.record.status === "open" && (await this.awaiter.hasEnded(found.record, true)))
        await unlessConflict(this.#rows.decide(found, withdrawn("ended")));
  }

  async #round(): Promise<void> {
    while ((await settleDue(this.#rows)) === RECORDS_PER_PAGE) if (this.#rounds.signal.aborted) return;
    let isLate = false;
    for await (const page of this.#rows.pagesOf(APPROVAL_ANSWERS))
      for (const { record } of page) {
        if (this.#rounds.signal.aborted) return;
        if ((await this.#tell(record)) === "later") isLate = true;
      }
    clearTimeout(this.#retry);
    if (isLate) this.#retry = setTimeout(() => this.#rounds.hurry(), this.#retryDelay).unref();
    this.#retryDelay = isLate ? Math.min(this.#retryDelay * 2, ROUND_INTERVAL_MS) : RETRY_DELAY_MS;
  }

  async #tell(record: ApprovalRecord): Promise<Delivery> {
    if (record.status === "open") return "gone";
    try {
      const delivery = await this.awaiter.tellAnswer(record);
      if (delivery === "gone") await this.#rows.forgetAnswer(record.id);
      return delivery;
    } catch (error) {
      const { id: approvalId, executionId, taskId } = record;
      const about = { approvalId, executionId, taskId, err: error };
      this.#logger.warn(about, `what waits for an approval could not be told of it: ${messageOf(error)}`);
      return "gone";
    }
  }
}

// Takes a person's answer. The first answer is the decision; the same answer again is accepted, a different one is an error.

/** The person who answers. */
interface Approver {
  readonly principal: Principal;
  /** The name in the record: a user's id, or the kind of caller. */
  readonly name: string;
  /** Whether it may answer as the console. */
  readonly isConsole: boolean;
}

interface AnswerOptions {
  readonly tools: { get(name: string): Tool | undefined };
  readonly clock?: Clock;
  /** Why nobody needs the answer any more; null while somebody does. */
  lost?(record: ApprovalRecord, approved: boolean): Promise<WithdrawalReason | null>;
}

/** @throws ServiceError `not_found`, `forbidden`, `invalid_input` for an invalid input, `conflict` when it is decided differently */
export async function answer(
  rows: ApprovalRows,
  id: string,
  body: AnswerApprovalRequest,
  approver: Approver,
  { tools, clock = storedTime, lost }: AnswerOptions,
): Promise<ApprovalRecord> {
  return changeInTurn("the approval", async () => {
    const found = await rows.read(id);
    if (found === undefined || !mayAccess(approver.principal, found.record.owner, undefined))
      throw notFound(`approval ${quoted(id)} does not exist`);
    const { record } = found;
    if (record.consoleOnly && !approver.isConsole)
      throw new ServiceError("forbidden", `tool ${JSON.stringify(record.toolName)} is approved by the console alone`);
    if (record.status !== "open") {
      if (saysTheSame(record, body)) return record;
      const why = record.status === "withdrawn" ? `: ${record.reason}` : "";
      throw new ServiceError("conflict", `the approval is already ${record.status}${why}`);
    }
    if (record.expiresAt <= clock()) {
      await rows.expire(found);
      return undefined;
    }
    const reason = await lost?.(record, body.approved);
    if (reason != null) {
      await rows.decide(found, withdrawn(reason, clock()));
      return undefined;
    }
    return rows.decide(found, {
      status: body.approved ? "approved" : "denied",
      decidedAt: clock(),
      decidedBy: approver.name,
      reason: body.reason,
      edited: editedInput(record, body, tools),
    });
  });
}

const saysTheSame = (record: ApprovalRecord, { approved, input }: AnswerApprovalRequest): boolean =>
  record.status === (approved ? "approved" : "denied") &&
  (input === undefined || canonicalJson(input) === canonicalJson(approvedInput(record)));

function editedInput(
  { toolName, input }: ApprovalRecord,
  body: AnswerApprovalRequest,
  tools: AnswerOptions["tools"],
): readonly [unknown] | undefined {
  if (body.input === undefined) return undefined;
  if (!body.approved) throw invalid("input belongs to an answer with approved: true");
  const tool = tools.get(toolName);
  if (tool === undefined)
    throw invalid(`input cannot be checked: there is no tool ${JSON.stringify(toolName)} any more`);
  const problem = tool.validate(body.input);
  if (problem !== null) throw invalid(problem);
  if (JSON.stringify(body.input).length > MAX_INPUT_CHARACTERS) throw invalid("input must be at most 64 KiB");
  return canonicalJson(body.input) === canonicalJson(input) ? undefined : [body.input];
}

interface ApprovalOptions {
  /** Whether stored objects belong to the token's user. */
  readonly isolated: boolean;
  /** Whether there is no authentication: then everybody has the rights of the console. Read for every answer. */
  readonly open: boolean;
  /** Milliseconds for which a decided approval is kept. Read for every decision. */
  readonly retention: number;
  /** How many questions of one user may be open. Read for every question. */
  readonly limit: number;
  /** Called for each question above that. */
  readonly refused: () => void;
  readonly logger: Logger;
}

/** What calls may be made of, and by whom. */
interface Known {
  readonly tools: AnswerOptions["tools"];
  readonly agents: { has(id: string): boolean };
}

type Which = (record: ApprovalRecord) => boolean;
type Pages = AsyncIterable<FoundApproval[]> | Iterable<Promise<FoundApproval[]>>;

export class Approvals implements ApprovalInbox {
  readonly #options: ApprovalOptions;
  #rows: ApprovalRows | null = null;
  #upkeep: Upkeep | null = null;
  #known: Known = { tools: new Map(), agents: new Map() };

  /** Tools are compiled before there is a store. Until `connect`, no call that needs approval runs. */
  constructor(options: ApprovalOptions) {
    this.#options = options;
  }

  connect(store: Store, known: Known): void {
    this.#rows = new ApprovalRows(store, () => this.#options.retention);
    this.use(known);
  }

  /** From now on answers are for these tools and agents. */
  use({ tools, agents }: Known): void {
    this.#known = { tools, agents };
  }

  /** @param steps of workflows, and kept runs */
  start(steps: Awaiter): void {
    this.#upkeep = new Upkeep(this.#connected(), steps, this.#options.logger);
  }

  async close(): Promise<void> {
    await this.#upkeep?.stop();
  }

  async admit(call: AskedCall): Promise<unknown> {
    const { approval, call: caller } = call.origin;
    const ask = () =>
      admit(this.#connected(), call, {
        bound: this.#bound,
        // A direct call is made again by its client. What goes on elsewhere, after a restart for example, waits for its answer.
        late: async (record) => {
          const isOver = isAwaited(record) ? await this.#upkeep?.awaiter.hasEnded(record) : record.kind !== "direct";
          if (isOver) await this.withdraw([record.id], "cancelled");
        },
        hear: (id, { from, ...answer }) => this.hear(id, answer, from),
      });
    // Nobody would make the call of a step or a kept run again, and what a person has answered must count.
    const report = (error: ServiceError) => approval?.record?.away(error);
    return ask().catch((failure) => {
      if (approval?.record?.isKept ?? approval?.kind === "step")
        return whileAway(failure, ask, { report, isOver: () => caller.signal.aborted });
      throw failure;
    });
  }

  /** Takes an answer, unless it does not count: somebody has answered before, or the requester is not permitted to. */
  async hear(id: string, body: AnswerApprovalRequest, requester: Requester): Promise<void> {
    try {
      await this.answer(id, body, requester);
    } catch (error) {
      if (!(error instanceof ServiceError) || error.kind === "unavailable") throw error;
    }
  }

  /** A page of approvals, and how many there are. Users see their own. */
  async list(query: ApprovalsQuery, requester: Requester): Promise<ApprovalsReply> {
    const rows = this.#connected();
    const principal = principalOf(requester, this.#options.isolated);
    // An expired approval is no longer open, even if it has not been marked yet.
    if ((await settleDue(rows)) > 0) this.#upkeep?.hurry();
    const { status, agentId, limit, offset, order } = { ...defaults.ApprovalsQuery, ...query };
    const filter = { status, agentId, owner: permittedUser(principal, query.userId) };
    const data = (await rows.list(filter, { limit, offset, order })).map(approvalView);
    const isLast = data.length < limit && (data.length > 0 || offset === 0);
    return { success: true, data, total: isLast ? offset + data.length : await rows.count(filter) };
  }

  /** Whether the requester may answer it, if it may see it. */
  mayAnswer({ approvers }: Approval, { caller }: Requester): boolean {
    return approvers === "owner" || this.#options.open || seesEverything(caller);
  }

  /** The approval with that id, if the requester may see it. */
  async find(id: string, requester: Requester): Promise<Approval | undefined> {
    const record = (await this.#connected().read(id))?.record;
    const mayRead = record && mayAccess(principalOf(requester, this.#options.isolated), record.owner, undefined);
    return mayRead ? approvalView(record) : undefined;
  }

  async answer(id: string, body: AnswerApprovalRequest, requester: Requester): Promise<Approval> {
    const principal = principalOf(requester, this.#options.isolated);
    const { kind } = requester.caller;
    const isConsole = seesEverything(requester.caller) || this.#options.open;
    const name = userIdOf(requester.user) ?? (kind === "console" || kind === "dev" ? kind : "anonymous");
    const record = await answer(
      this.#connected(),
      id,
      body,
      { principal, name, isConsole },
      {
        tools: this.#known.tools,
        lost: (asked, approved) => this.#lost(asked, approved),
      },
    );
    if (isAwaited(record)) await this.#upkeep?.deliver(record);
    return approvalView(record);
  }

  /** Why nobody needs the answer any more: an older release withdrew nothing, and a process may die before it does. */
  async #lost(record: ApprovalRecord, approved: boolean): Promise<WithdrawalReason | null> {
    const { toolName, agentId } = record;
    if (isAwaited(record) && (await this.#upkeep?.awaiter.hasEnded(record))) return "ended";
    const { tools, agents } = this.#known;
    const isKnown = tools.get(toolName) !== undefined && (agentId === undefined || agents.has(agentId));
    return approved && !isKnown ? "tool_removed" : null;
  }

  /** Withdraws the open questions of a place, which `approvalPlace` names. Never rejects: an answer is refused all the same. */
  async withdrawAt(place: string, reason: WithdrawalReason, which?: Which): Promise<void> {
    await this.#withdrawAll(this.#connected().pagesOf(place), reason, which);
  }

  async withdraw(ids: readonly string[], reason: WithdrawalReason): Promise<void> {
    await this.#withdrawAll([this.#connected().readMany(ids)], reason);
  }

  async supersede(ids: readonly string[], agentId: string, owner: string): Promise<void> {
    await this.#withdrawAll([this.#connected().readMany(ids)], "superseded", (record) => {
      const { kind, runId, taskId, consoleOnly } = record;
      // A task of A2A goes on beside others in its context, until it is canceled.
      const isAnswered = taskId === undefined && (kind === "chat" || runId !== undefined);
      return isAnswered && !consoleOnly && record.agentId === agentId && record.owner === owner;
    });
  }

  /** Those that were withdrawn, and others of a run that has ended with one of them: where only a tool is gone it goes on. */
  async endings(ids: readonly string[], owner: string): Promise<Map<string, string>> {
    // With a store that is away, the next message tells it.
    const found = await this.#connected()
      .readMany(ids)
      .catch(() => []);
    const own = found.map(({ record }) => record).filter((record) => record.owner === owner);
    const over = own.filter(({ status, reason }) => status === "withdrawn" && reason !== "tool_removed");
    return new Map(
      own.flatMap(({ id, runId }) => {
        const by = over.find((each) => each.id === id || (runId !== undefined && each.runId === runId));
        return by === undefined ? [] : [[id, by.reason!]];
      }),
    );
  }

  async #withdrawAll(pages: Pages, reason: WithdrawalReason, which: Which = () => true): Promise<void> {
    const rows = this.#connected();
    try {
      for await (const page of pages) {
        const open = page.filter(({ record }) => record.status === "open" && which(record));
        await Promise.all(open.map((each) => unlessConflict(rows.decide(each, withdrawn(reason)))));
        if (open.some(({ record }) => isAwaited(record))) this.#upkeep?.hurry();
      }
    } catch (error) {
      this.#options.logger.warn({ err: error }, `approvals could not be withdrawn: ${messageOf(error)}`);
    }
  }

  readonly #bound = new UserBound({
    count: (user, most) => this.#connected().countOpen(user, most),
    limit: () => this.#options.limit,
    tooMany: (limit) => {
      this.#options.refused();
      return `the user has ${limit} open approvals already: answer some of them first`;
    },
  });

  /** The statuses of questions by id, for those that exist. A call whose tool is gone goes on as one that was refused. */
  async statusOf(ids: readonly string[]): Promise<Map<string, ApprovalStatus>> {
    const found = await this.#connected().readMany(ids);
    return new Map(
      found.map(({ record: { id, status, reason } }) => [id, reason === "tool_removed" ? "denied" : status]),
    );
  }

  #connected(): ApprovalRows {
    if (this.#rows === null) throw unavailable("the service has not started yet");
    return this.#rows;
  }
}
