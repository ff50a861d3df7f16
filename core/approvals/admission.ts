/** Decides whether a call that needs approval may run now, depending on the origin of the call and the state of its question. */
import { randomBytes } from "node:crypto";
import { userIdOf } from "../identity/principal.ts";
import { type Clock, storedTime } from "../lib/clock.ts";
import { invalid, ServiceError } from "../lib/errors.ts";
import type { UserBound } from "../lib/user-bound.ts";
import { digestOf } from "../storage/keys.ts";
import { changeInTurn } from "../storage/store.ts";
import {
  type ApprovalClaim,
  ApprovalNeeded,
  ApprovalRefused,
  type ApprovalRule,
  type AskedCall,
  mayHaveAsked,
  notApproved,
} from "../tools/tool.ts";
import { type ApprovalRecord, approvedInput, MAX_INPUT_CHARACTERS, placeOf, shownContext } from "./record.ts";
import { type ApprovalRows, countsForUser } from "./rows.ts";

const ID_BYTES = 16;
const DIRECT: ApprovalClaim = { kind: "direct" };

type AskingKind = ApprovalRecord["kind"];
/** The state of the question of a call. */
type Standing = "none" | "open" | "approved" | "used" | "denied" | "expired" | "withdrawn";
/** `ask` a new question, `wait` for the answer, `use` it, run `again` the call that has used it, or `refuse`. */
type Action = "ask" | "wait" | "use" | "again" | "refuse";

/** The action for a call that brings the id of an approval. */
const WITH_ID: Readonly<Record<Standing, Action>> = {
  none: "refuse",
  open: "wait",
  approved: "use",
  used: "refuse",
  denied: "refuse",
  expired: "refuse",
  withdrawn: "refuse",
};

/** The action for a call without an id, by its origin. */
const WITHOUT_ID: Readonly<Record<AskingKind, Readonly<Record<Standing, Action>>>> = {
  // The client repeats the call with the id; a call without one asks a new question.
  direct: { ...WITH_ID, none: "ask", approved: "wait", used: "ask", denied: "ask", expired: "ask", withdrawn: "ask" },
  chat: { ...WITH_ID, none: "ask", approved: "wait" },
  // A step that has started runs again after a crash, with the same key, like every step.
  step: { ...WITH_ID, none: "ask", used: "again" },
};

type ReportedAnswer = NonNullable<ApprovalClaim["answer"]>;

interface AdmissionOptions {
  readonly clock?: Clock;
  /** Takes the answer that a client reports, if its user may give it. */
  hear?(id: string, answer: ReportedAnswer): Promise<void>;
  /** Called for a question whose asker was stopped before it was stored, and may have looked for it in vain. */
  late?(record: ApprovalRecord): Promise<void>;
  /** Of the open questions of a user; default: there may be any number. */
  readonly bound?: UserBound;
}

/** Resolves to the input with which to run. @throws like `ApprovalInbox.admit` */
export async function admit(
  rows: ApprovalRows,
  asked: AskedCall,
  { clock = storedTime, hear, late, bound }: AdmissionOptions = {},
): Promise<unknown> {
  const { tool, input, origin } = asked;
  const { approval: claim = DIRECT } = origin;
  const { kind, id } = claim;
  if (kind === "none")
    throw new ServiceError(
      "conflict",
      `tool ${JSON.stringify(tool.name)} needs a person's approval, and nobody can be asked here`,
    );
  const call = { ...claim, kind, owner: claim.userId ?? userIdOf(origin.call.user) ?? "" };
  const digests = digestsOf(asked, call);
  const usedBy = claim.record && origin.idempotencyKey;
  let free: boolean | undefined;
  const isFree = () => (free ??= mayHaveAsked(tool, origin.approval) && runsWithout(asked));
  let { answer } = claim;
  const admitted = await changeInTurn("the approval", async () => {
    const last = id === undefined ? await rows.lastOf(digests.key) : { found: await rows.read(id), revision: null };
    const known = belongs(last.found?.record, digests, call) ? last.found : undefined;
    if (known?.record.status === "open" && known.record.expiresAt <= clock()) {
      await rows.expire(known);
      return undefined;
    }
    const found = known !== undefined && fitsContext(known.record, digests, answer) ? known : undefined;
    if (answer !== undefined && found?.record.status === "open") {
      await hear?.(found.record.id, answer);
      answer = undefined;
      return undefined;
    }
    const stands = standing(found?.record, clock(), claim.since);
    const isOwn = stands === "used" && usedBy !== undefined && found!.record.usedBy === usedBy;
    const action = isOwn ? "again" : (id === undefined ? WITHOUT_ID[kind] : WITH_ID)[stands];
    // The id of a direct call may be meant for another one of the same request.
    if ((action === "ask" || (stands === "none" && kind === "direct")) && isFree()) return { input };
    switch (action) {
      case "ask": {
        const record = question(asked, call, digests, clock());
        const create = async () => {
          await claim.keep?.();
          await rows.create(record, last.revision);
        };
        await (bound !== undefined && countsForUser(record) ? bound.claim(record.owner, create) : create());
        if (origin.call.signal.aborted) await late?.(record);
        throw new ApprovalNeeded(record.id, tool.name, input);
      }
      case "wait":
        throw waits(found!.record);
      case "refuse":
        // The step has the answer now, so nothing needs to resume it.
        if (found !== undefined && found.record.usedAt === undefined) await rows.use(found, clock());
        throw found === undefined && kind !== "direct"
          ? notApproved(tool.name)
          : refusal(found?.record, stands, tool.name);
      case "again":
        return { input: approvedInput(found!.record) };
      case "use": {
        const approved = approvedInput(found!.record);
        const problem = tool.validate(approved);
        if (problem !== null) throw invalid(problem);
        await rows.use(found!, Math.max(clock(), claim.since ?? 0), usedBy);
        return { input: approved };
      }
    }
  });
  return admitted.input;
}

/** Whether the rule lets a call run about which nobody was asked. @throws ServiceError for an input that does not fit */
function runsWithout({ tool, input, origin }: AskedCall): boolean {
  const problem = tool.validate(input);
  if (problem !== null) throw invalid(problem);
  return tool.approval === false || !tool.approval.asks(input, origin);
}

type Call = ApprovalClaim & { readonly kind: AskingKind; readonly owner: string };
type Digests = Pick<ApprovalRecord, "key" | "call" | "contextDigest">;

/** An older release has stored no context. A no that its client brings stands, whatever context it comes with. */
const fitsContext = (
  { contextDigest, status }: ApprovalRecord,
  digests: Digests,
  answer: ReportedAnswer | undefined,
): boolean =>
  contextDigest === undefined ||
  contextDigest === digests.contextDigest ||
  answer?.approved === false ||
  status === "denied";

/** An approval for another user, another tool or another input does not exist for this call. */
const belongs = (record: ApprovalRecord | undefined, { call, key }: Digests, { owner }: Call): boolean =>
  (record?.call === call || record?.call === key) && record.owner === owner;

/** @param since start of the execution to which the call belongs */
function standing(record: ApprovalRecord | undefined, now: number, since = 0): Standing {
  if (record === undefined) return "none";
  const { status, usedAt, kind, createdAt, expiresAt, decidedAt } = record;
  if (status !== "approved") return status;
  if (usedAt !== undefined) return usedAt < since ? "none" : "used";
  // An approval does not last forever. But a step that was approved may continue whenever its process is back.
  return kind === "step" || decidedAt! + (expiresAt - createdAt) > now ? "approved" : "expired";
}

/** `key` finds the question again; `call` and the context identify the calls for which an approval is valid. */
function digestsOf({ tool, input, origin }: AskedCall, { kind, owner, ...claim }: Call): Digests {
  const what = [tool.name, input ?? null];
  const { context, idempotencyKey } = origin;
  const of = (rest: readonly unknown[], as: AskingKind = kind) => digestOf([as, owner, ...rest, ...what]);
  // The client of a run may bring the answer.
  const brings = claim.runId === undefined ? kind : "chat";
  const calls: Readonly<Record<AskingKind, readonly unknown[]>> = {
    direct: [context],
    step: [idempotencyKey],
    chat: [claim.agentId, claim.toolCallId],
  };
  const call = of(calls[brings], brings);
  return { key: kind === "direct" ? call : of([idempotencyKey]), call, contextDigest: digestOf(context) };
}

/** @throws ServiceError `invalid_input` for an input that is too large */
function question({ tool, input, origin }: AskedCall, call: Call, digests: Digests, now: number): ApprovalRecord {
  if (JSON.stringify(input ?? null).length > MAX_INPUT_CHARACTERS)
    throw invalid(
      `input of tool ${JSON.stringify(tool.name)} needs a person's approval, and must be at most 64 KiB for that`,
    );
  const { expires, consoleOnly } = tool.approval as ApprovalRule;
  const { kind, owner, stepAgentId, executionId = origin.executionId } = call;
  const { conversationId } = origin;
  return {
    id: randomBytes(ID_BYTES).toString("hex"),
    toolName: tool.name,
    input: input ?? null,
    ...shownContext(origin.context),
    kind,
    owner,
    ...digests,
    consoleOnly,
    ...placeOf({ ...call, executionId, conversationId }),
    ...(stepAgentId !== undefined && stepAgentId !== call.agentId && { stepAgentId }),
    createdAt: now,
    expiresAt: now + expires,
    status: "open",
  };
}

function waits({ id, toolName, input, status }: ApprovalRecord): ApprovalNeeded {
  const approved = "it is approved, and runs with its id in the header x-approval-id";
  return new ApprovalNeeded(id, toolName, input, status === "open" ? undefined : approved);
}

function refusal(record: ApprovalRecord | undefined, stands: Standing, tool: string): ServiceError {
  const name = JSON.stringify(tool);
  const because = record?.reason === undefined ? "" : `: ${record.reason}`;
  const messages: Readonly<Partial<Record<Standing, string>>> = {
    none: `x-approval-id names no approval of this call of tool ${name}`,
    used: `approval ${record?.id} has been used: a call runs once`,
    denied: `tool ${name} was refused${because}`,
    expired: `the approval of tool ${name} has expired`,
    withdrawn: `the approval of tool ${name} was withdrawn${because}`,
  };
  const message = messages[stands]!;
  const isNo = stands !== "none" && stands !== "used";
  return isNo ? new ApprovalRefused(message, record?.reason ?? message) : new ServiceError("conflict", message);
}
