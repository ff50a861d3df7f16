/** The work of a step that calls a tool. */
import type { Logger } from "pino";
import { type Caller, cloneUser, type User } from "../../identity/principal.ts";
import { cloneJson } from "../../lib/canonical-json.ts";
import type { Path } from "../../manifest/manifest.ts";
import type { SpanOrigin } from "../../observability/span.ts";
import { executeTool } from "../../tools/execute.ts";
import { type ApprovalClaim, ApprovalNeeded, type ToolOrigin } from "../../tools/tool.ts";
import { compileValue, type LinkContext, type StepCall, Suspend, type Work } from "../definition/definition.ts";

/** @returns null when there is no such tool */
export function compileTool(
  linking: LinkContext,
  work: { tool: string; input: unknown; tap: boolean },
  at: Path,
  names: readonly string[],
): Work | null {
  const input = compileValue(linking, work.input === undefined ? "{{ data }}" : work.input, [...at, "input"], names);
  const tool = linking.parts.tools.get(work.tool);
  if (tool === undefined) {
    linking.missing.add(`tool ${JSON.stringify(work.tool)}`);
    return null;
  }
  return {
    run(call) {
      // A tap cannot suspend its execution.
      const kind = work.tap ? "none" : "step";
      const origin = new StepOrigin(call, kind);
      const running = executeTool(tool, cloneJson(input(call.scope)), origin);
      // A reload may have freed a tool about which somebody is asked.
      const asks = tool.approval !== false || origin.approval.isRepeated === true;
      return asks && running instanceof Promise ? running.catch(suspendIfAsked) : running;
    },
    readOnly: tool.readOnly ?? false,
  };
}

type AskedFor = Pick<ApprovalNeeded, "approvalId" | "toolName" | "input">;

/** Suspends the step until the approval is answered, which resumes it. A resume before that only makes it ask again. */
function suspendIfAsked(error: unknown): Suspend {
  if (!(error instanceof ApprovalNeeded)) throw error;
  return suspendForApproval(error);
}

export function suspendForApproval({ approvalId, toolName, input }: AskedFor): Suspend {
  return new Suspend(`tool ${JSON.stringify(toolName)} needs approval`, { approvalId, toolName, input }, false);
}

/** The caller of tools and agents that run in a step. The signal is created when it is first read. */
export class StepCaller {
  readonly user: User | null;
  readonly caller: Caller;
  readonly trace: SpanOrigin | undefined;
  readonly #call: StepCall;

  constructor(call: StepCall) {
    this.user = cloneUser(call.scope.user);
    this.caller = call.caller;
    this.trace = call.trace;
    this.#call = call;
  }

  get requestId(): string {
    return this.#call.requestId;
  }

  confirm(): Promise<void> | undefined {
    return this.#call.confirm?.();
  }

  get logger(): Logger {
    return this.#call.logger;
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }
}

class StepOrigin implements ToolOrigin {
  /** The result of a tool that ignores its signal counts, because its effects have happened. The lifetime of the step bounds the wait. */
  readonly waitsForLate = true;
  readonly call: StepCaller;
  readonly context: Record<string, unknown>;
  readonly conversationId: string | undefined;
  readonly executionId: string;
  readonly idempotencyKey: string;
  readonly approval: ApprovalClaim;

  constructor(call: StepCall, kind: "step" | "none") {
    this.call = new StepCaller(call);
    const { userId = "", workflowId, path: stepId } = call;
    // A retry and a resume have the same key: what was asked before still decides.
    const isRepeated = kind === "step" && (call.isRepeated || call.resume !== null || call.attempt > 1);
    this.approval = { kind, userId, workflowId, stepId, since: call.startedAt, isRepeated };
    this.context = cloneJson(call.scope.context) as Record<string, unknown>;
    this.conversationId = call.conversationId;
    this.executionId = call.executionId;
    this.idempotencyKey = call.idempotencyKey;
  }
}
