/** A tool as agents and `POST /tools/:name/execute` use it, whether a plugin or a REST call stands behind it. */
import type { Logger } from "pino";
import type { User } from "../identity/user.ts";
import type { JsonSchema } from "../lib/json-schema.ts";
import type { ToolMeter } from "../observability/metrics/named.ts";
import type { Span, SpanOrigin } from "../observability/span.ts";

/** What a tool knows beside its input (design.md, section 4). `signal` also aborts at the tool's time limit. */
export interface ToolCallContext {
  readonly signal: AbortSignal;
  readonly logger: Logger;
  readonly user: User | null;
  readonly context: Record<string, unknown>;
  readonly conversationId?: string;
  readonly executionId?: string;
  readonly idempotencyKey?: string;
  readonly requestId: string;
}

/** What `Tool.run` gets: the call, and the tool's own `with` from the manifest. */
export interface ConfiguredCall extends ToolCallContext {
  /** `with` of the manifest, checked, with the defaults of the plugin's schema. */
  readonly config: unknown;
}

export interface Tool {
  /** The key in the manifest: the name that the API and the models see. */
  readonly name: string;
  readonly description: string;
  readonly tags: readonly string[];
  /** JSON Schema of the input. */
  readonly parameters: JsonSchema;
  /** Needs a person's yes before it runs (until approvals exist it never runs). */
  readonly approval: boolean;
  /** Milliseconds. */
  readonly timeout: number;
  /** `with` of the manifest; handed to `run` as `call.config`. */
  readonly config: unknown;
  /** Its description, parameters and status change while the service runs: they are read when they are needed. */
  readonly changes?: boolean;
  /** False while what is behind it cannot be reached. */
  readonly available?: boolean;
  /** What its calls are counted by. */
  readonly meter?: ToolMeter;
  /** Every problem of an input joined by `; ` (`input.city must be string`), or null when it fits. */
  validate(input: unknown): string | null;
  /** Runs the tool without checks. Use `executeTool`, which checks approval, input, time limit and signal. */
  run(input: unknown, call: ConfiguredCall): unknown;
}

/**
 * On whose behalf a tool runs. `call` is the request's own context and is never copied: its `signal` and `logger` are
 * made when first asked for, and most tools ask for neither.
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
  /** Of this call, where its caller has begun one, and ends it; null: it is not traced. Left out: it begins with `call`. */
  readonly span?: Span | null;
}

/** What a tool throws whose server cannot be reached: the call is `unavailable`, and has not failed. */
export class ToolUnavailable extends Error {
  override readonly name = "ToolUnavailable";
}
