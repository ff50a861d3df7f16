/** What a step plugin sees of one try: values of its own, each copied when it is first read. */
import type { Logger } from "pino";
import type { User } from "../http/route.ts";
import type { StepContext } from "../plugin.ts";
import { type StepCall, Suspend } from "./definition.ts";
import { copyOf } from "./json.ts";

type Values = Record<string, unknown>;

/** Stands where nothing was read yet. */
const UNREAD = Symbol("unread");

export class PluginCall implements StepContext {
  readonly #call: StepCall;
  readonly #config: unknown;
  #data: unknown = UNREAD;
  #input: unknown = UNREAD;
  #state: unknown = UNREAD;
  #steps: unknown = UNREAD;
  #context: unknown = UNREAD;
  #user: unknown = UNREAD;
  #ownConfig: unknown = UNREAD;
  #resumeData: unknown = UNREAD;

  constructor(call: StepCall, config: unknown) {
    this.#call = call;
    this.#config = config;
  }

  get data(): unknown {
    if (this.#data === UNREAD) this.#data = copyOf(this.#call.scope.data);
    return this.#data;
  }

  get input(): unknown {
    if (this.#input === UNREAD) this.#input = copyOf(this.#call.scope.input);
    return this.#input;
  }

  get state(): unknown {
    if (this.#state === UNREAD) this.#state = copyOf(this.#call.scope.state);
    return this.#state;
  }

  get steps(): Values {
    if (this.#steps === UNREAD) this.#steps = copyOf(this.#call.scope.steps);
    return this.#steps as Values;
  }

  get context(): Values {
    if (this.#context === UNREAD) this.#context = copyOf(this.#call.scope.context);
    return this.#context as Values;
  }

  get user(): User | null {
    if (this.#user === UNREAD) this.#user = copyOf(this.#call.scope.user);
    return this.#user as User | null;
  }

  get config(): unknown {
    if (this.#ownConfig === UNREAD) this.#ownConfig = copyOf(this.#config);
    return this.#ownConfig;
  }

  /** Undefined until the step was resumed; null when that was done without data. */
  get resumeData(): unknown {
    const { resume } = this.#call;
    if (this.#resumeData === UNREAD) this.#resumeData = resume === null ? undefined : copyOf(resume.data ?? null);
    return this.#resumeData;
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
