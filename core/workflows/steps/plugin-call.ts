/** What a step plugin sees of one try: values of its own, each copied when it is first read. */
import type { Logger } from "pino";
import type { User } from "../../identity/user.ts";
import { cloneJson } from "../../lib/clone-json.ts";
import type { StepContext } from "../../plugin/plugin.ts";
import { type StepCall, Suspend } from "../definition/definition.ts";

type Values = Record<string, unknown>;

/** The copies that were made. What is null needs none. */
interface Copies {
  data?: unknown;
  input?: unknown;
  state?: unknown;
  steps?: Values;
  context?: Values;
  user?: User | null;
  config?: unknown;
  resumeData?: unknown;
}

export class PluginCall implements StepContext {
  readonly #call: StepCall;
  readonly #config: unknown;
  readonly #own: Copies = {};

  constructor(call: StepCall, config: unknown) {
    this.#call = call;
    this.#config = config;
  }

  get data(): unknown {
    this.#own.data ??= cloneJson(this.#call.scope.data);
    return this.#own.data;
  }

  get input(): unknown {
    this.#own.input ??= cloneJson(this.#call.scope.input);
    return this.#own.input;
  }

  get state(): unknown {
    this.#own.state ??= cloneJson(this.#call.scope.state);
    return this.#own.state;
  }

  get steps(): Values {
    this.#own.steps ??= cloneJson(this.#call.scope.steps);
    return this.#own.steps;
  }

  get context(): Values {
    this.#own.context ??= cloneJson(this.#call.scope.context);
    return this.#own.context;
  }

  get user(): User | null {
    this.#own.user ??= cloneJson(this.#call.scope.user);
    return this.#own.user;
  }

  get config(): unknown {
    this.#own.config ??= cloneJson(this.#config);
    return this.#own.config;
  }

  /** Undefined until the step was resumed; null when that was done without data. */
  get resumeData(): unknown {
    const { resume } = this.#call;
    if (resume === null) return undefined;
    this.#own.resumeData ??= cloneJson(resume.data ?? null);
    return this.#own.resumeData;
  }

  get suspend(): (reason: string, data?: unknown) => Suspend {
    return suspend;
  }

  get setState(): (change: Values) => void {
    const call = this.#call;
    return (change) => {
      if (typeof change !== "object" || change === null || Array.isArray(change)) {
        throw new Error("setState takes an object");
      }
      call.setState(change);
    };
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }

  get logger(): Logger {
    return this.#call.logger;
  }

  get executionId(): string {
    return this.#call.executionId;
  }

  get conversationId(): string | undefined {
    return this.#call.conversationId;
  }

  get idempotencyKey(): string {
    return this.#call.idempotencyKey;
  }

  get attempt(): number {
    return this.#call.attempt;
  }
}

const suspend = (reason: unknown, data?: unknown): Suspend =>
  new Suspend(typeof reason === "string" ? reason : String(reason ?? ""), data ?? null);
