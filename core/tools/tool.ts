/** A tool as agents, workflows and `POST /tools/:name/execute` use it: a plugin, an HTTP request or a tool of an MCP server. */
import type { Logger } from "pino";
import type { User } from "../identity/user.ts";
import type { JsonSchema } from "../lib/json-schema.ts";
import type { OnToolProgress } from "../lib/tool-progress.ts";
import type { ToolMeter } from "../observability/metrics/named.ts";
import type { Span, SpanOrigin } from "../observability/span.ts";
import type { ApprovalClaim, ApprovalRule } from "./approval.ts";

/** What a tool gets beside its input. `signal` also aborts at the tool's time limit. */
export interface ToolCallContext {
  readonly signal: AbortSignal;
  readonly logger: Logger;
  readonly user: User | null;
  readonly context: Record<string, unknown>;
  readonly conversationId?: string;
  readonly executionId?: string;
  readonly idempotencyKey?: string;
  readonly requestId: string;
  /** Tells how far the call is: `call.progress?.({ progress: 3, total: 10, message: "..." })`. Undefined where nobody follows. */
  readonly progress?: OnToolProgress | undefined;
}

/** What `Tool.run` gets: the call, and the tool's own `with` from the manifest. */
export interface ConfiguredCall extends ToolCallContext {
  /** `with` of the manifest, checked, with the defaults of the plugin's schema. */
  readonly config: unknown;
  /** Of this call, for the headers of requests that it makes; null: the call is not traced. */
  readonly span: Span | null;
}

export interface Tool {
  /** The key in the manifest: the name that the API and the models see. */
  readonly name: string;
  readonly description: string;
  readonly tags: readonly string[];
  /** JSON Schema of the input. */
  readonly parameters: JsonSchema;
  /** Run by the client of an agent: the service only hands the call over. */
  readonly client?: true;
  /** Which of its calls a person must approve; false: none. */
  readonly approval: ApprovalRule | false;
  /** It changes nothing outside, and may run again after a crash. */
  readonly readOnly?: boolean | undefined;
  /** Most bytes of a result that a model is shown; undefined: as the agent says. */
  readonly outputLimit?: number | undefined;
  /** Milliseconds. */
  readonly timeout: number;
  /** `with` of the manifest; handed to `run` as `call.config`. */
  readonly config: unknown;
  /** Its description, parameters and status may change while the service runs: do not keep copies of them. */
  readonly changes?: boolean;
  /** False while its server cannot be reached. */
  readonly available?: boolean;
  /** Counts its calls. */
  readonly meter?: ToolMeter;
  /** Every problem of an input joined by `; ` (`input.city must be string`), or null when it fits. */
  validate(input: unknown): string | null;
  /** Runs the tool without checks. Use `executeTool`, which checks approval, input, time limit and signal. */
  run(input: unknown, call: ConfiguredCall): unknown;
}

/**
 * The request or run that a tool is called from. `call` is the request's own context and is never copied: its `signal` and
 * `logger` are made on first use, and most tools use neither.
 */
export interface ToolOrigin {
  readonly call: {
    readonly signal: AbortSignal;
    readonly logger: Logger;
    readonly user: User | null;
    readonly requestId: string;
    readonly trace?: SpanOrigin | undefined;
  };
  /** `context` of the request; an empty object when there is none. */
  readonly context: Record<string, unknown>;
  readonly conversationId?: string;
  readonly executionId?: string;
  readonly idempotencyKey?: string;
  /** What the call says of itself where it needs approval; left out: it comes from the API. */
  readonly approval?: ApprovalClaim;
  /**
   * The caller wants what the tool gives after `call.signal` has aborted, since its effects have happened, and bounds by itself how long
   * it waits for that.
   */
  readonly waitsForLate?: true;
  /** Called with what the tool reports while it runs, at most once a second. */
  readonly progress?: OnToolProgress | undefined;
  /** The span of this call, where the caller begins and ends it; null: the call is not traced. Left out: a span is made here. */
  readonly span?: Span | null;
}

/** Thrown by a tool whose server cannot be reached: the client gets `unavailable` instead of `tool_failed`. */
export class ToolUnavailable extends Error {
  override readonly name = "ToolUnavailable";
}
