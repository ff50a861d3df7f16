/** The work of a step that uses a step plugin. */
import type { Logger } from "pino";
import type { User } from "../../identity/principal.ts";
import { cloneJson } from "../../lib/canonical-json.ts";
import { isObject } from "../../lib/is-object.ts";
import { isThenable } from "../../lib/thenable.ts";
import type { Path } from "../../manifest/manifest.ts";
import type { StepContext, StepPlugin } from "../../plugin/plugin.ts";
import { configure } from "../../registry/create.ts";
import {
  type LinkContext,
  type StepCall,
  type StepError,
  Suspend,
  type Work,
  type WorkStep,
} from "../definition/definition.ts";

type Values = Record<string, unknown>;

/** The copies made so far. */
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

/** What a step plugin sees of one try. Each value is a copy, made when it is first read, so that a plugin cannot change ours. */
class PluginCall implements StepContext {
  readonly #call: StepCall;
  readonly #config: unknown;
  readonly #copies: Copies = {};

  constructor(call: StepCall, config: unknown) {
    this.#call = call;
    this.#config = config;
  }

  get data(): unknown {
    this.#copies.data ??= cloneJson(this.#call.scope.data);
    return this.#copies.data;
  }

  get input(): unknown {
    this.#copies.input ??= cloneJson(this.#call.scope.input);
    return this.#copies.input;
  }

  get state(): unknown {
    this.#copies.state ??= cloneJson(this.#call.scope.state);
    return this.#copies.state;
  }

  get steps(): Values {
    this.#copies.steps ??= cloneJson(this.#call.scope.steps);
    return this.#copies.steps;
  }

  get context(): Values {
    this.#copies.context ??= cloneJson(this.#call.scope.context);
    return this.#copies.context;
  }

  get error(): StepError | null {
    const { error } = this.#call.scope;
    return error === undefined ? null : { ...error };
  }

  get user(): User | null {
    this.#copies.user ??= cloneJson(this.#call.scope.user);
    return this.#copies.user;
  }

  get config(): unknown {
    this.#copies.config ??= cloneJson(this.#config);
    return this.#copies.config;
  }

  /** Undefined until the step is resumed; null after a resume without data. */
  get resumeData(): unknown {
    const { resume } = this.#call;
    if (resume === null) return undefined;
    this.#copies.resumeData ??= cloneJson(resume.data ?? null);
    return this.#copies.resumeData;
  }

  get suspend(): (reason: string, data?: unknown) => Suspend {
    return suspend;
  }

  get setState(): (change: Values) => void {
    const call = this.#call;
    return (change) => {
      if (!isObject(change)) {
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

interface PluginWork {
  readonly use: string;
  readonly with: Readonly<Record<string, unknown>> | undefined;
  readonly tap: boolean;
}

/** @returns null when there is no such plugin, or its settings are invalid */
export function compilePlugin(linking: LinkContext, work: PluginWork, at: Path): Work | null {
  const plugin = linking.parts.registry.get("step", work.use);
  if (plugin === undefined) {
    linking.missing.add(`step plugin ${JSON.stringify(work.use)}`);
    return null;
  }
  const { config, problem } = configure(plugin, work.with);
  if (config === null) {
    linking.problems.push({ path: [...at, "with"], message: problem });
    return null;
  }
  const run = work.tap ? runTap(plugin, config) : runPlugin(plugin, config);
  return { run, readOnly: plugin.readOnly ?? false };
}

const runPlugin =
  (plugin: StepPlugin, config: unknown): WorkStep["run"] =>
  (call) =>
    plugin.execute(new PluginCall(call, config));

/** A tap cannot suspend the execution. */
const runTap =
  (plugin: StepPlugin, config: unknown): WorkStep["run"] =>
  (call) => {
    const given = plugin.execute(new PluginCall(call, config));
    return isThenable(given) ? Promise.resolve(given).then(discardOutput) : discardOutput(given);
  };

function discardOutput(given: unknown): null {
  if (given instanceof Suspend) throw new Error("a step of andTap cannot suspend");
  return null;
}
