/** The `call` of a custom route. Whatever is behind a getter is created when it is read, so that routes pay only for what they use. */
import type { Logger } from "pino";
import type { Service } from "../../app/service.ts";
import type { Context } from "../../http/route.ts";
import { perform } from "../routes/perform.ts";
import { MemoryCalls } from "./route-memory.ts";
import type { RouteAgents, RouteCall, RouteClient, RouteMemory, RouteTools, RouteWorkflows } from "./route-services.ts";

type Of<T, K extends keyof T> = T[K] extends (...given: infer P) => unknown ? P : never;

export class CustomCall implements RouteCall {
  readonly #call: Context<Service>;
  readonly requestId: string;

  constructor(call: Context<Service>) {
    this.#call = call;
    this.requestId = call.requestId;
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }

  get logger(): Logger {
    return this.#call.logger;
  }

  get client(): RouteClient {
    const { address, scheme, host } = this.#call.client;
    return { address, scheme, host };
  }

  get agents(): RouteAgents {
    return new AgentCalls(this.#call);
  }

  get tools(): RouteTools {
    return new ToolCalls(this.#call);
  }

  get workflows(): RouteWorkflows {
    return new WorkflowCalls(this.#call);
  }

  /** Returns an arrow function, so that routes may destructure the call. */
  get memory(): (name?: string) => RouteMemory {
    return (name) => new MemoryCalls(this.#call, name);
  }
}

class AgentCalls implements RouteAgents {
  readonly #call: Context<Service>;

  constructor(call: Context<Service>) {
    this.#call = call;
  }

  list() {
    return perform<"AgentList">(this.#call, "agents.list");
  }

  get(id: string) {
    return perform<"AgentDetail">(this.#call, "agents.get", { params: { id } });
  }

  generateText(...[id, body]: Of<RouteAgents, "generateText">) {
    return perform<"TextResult">(this.#call, "agents.generateText", { params: { id }, body });
  }

  generateObject(...[id, body]: Of<RouteAgents, "generateObject">) {
    return perform<"GeneratedObject">(this.#call, "agents.generateObject", { params: { id }, body });
  }

  history(...[id, query]: Of<RouteAgents, "history">) {
    return perform<"HistoryPage">(this.#call, "agents.history", { params: { id }, query });
  }
}

class ToolCalls implements RouteTools {
  readonly #call: Context<Service>;

  constructor(call: Context<Service>) {
    this.#call = call;
  }

  list() {
    return perform<"ToolList">(this.#call, "tools.list");
  }

  async execute(...[name, input, options]: Of<RouteTools, "execute">) {
    const body = { input, context: options?.context };
    const { result } = await perform<"ToolExecutionResult">(this.#call, "tools.execute", { params: { name }, body });
    return result;
  }
}

class WorkflowCalls implements RouteWorkflows {
  readonly #call: Context<Service>;

  constructor(call: Context<Service>) {
    this.#call = call;
  }

  list() {
    return perform<"WorkflowList">(this.#call, "workflows.list");
  }

  get(id: string) {
    return perform<"WorkflowDetail">(this.#call, "workflows.get", { params: { id } });
  }

  executions(...[query]: Of<RouteWorkflows, "executions">) {
    return perform<"WorkflowExecutionList">(this.#call, "workflows.listExecutions", { query });
  }

  execute(...[id, body]: Of<RouteWorkflows, "execute">) {
    return perform<"ExecutionResult">(this.#call, "workflows.execute", { params: { id }, body });
  }

  suspend(...[id, executionId, reason, query]: Of<RouteWorkflows, "suspend">) {
    const given = { params: { id, executionId }, query, body: { reason } };
    return perform<"ExecutionSuspended">(this.#call, "workflows.suspend", given);
  }

  resume(...[id, executionId, body = {}, query]: Of<RouteWorkflows, "resume">) {
    return perform<"ExecutionResult">(this.#call, "workflows.resume", { params: { id, executionId }, query, body });
  }

  replay(...[id, executionId, body, query]: Of<RouteWorkflows, "replay">) {
    return perform<"ExecutionResult">(this.#call, "workflows.replay", { params: { id, executionId }, query, body });
  }

  cancel(...[id, executionId, reason, query]: Of<RouteWorkflows, "cancel">) {
    const given = { params: { id, executionId }, query, body: { reason } };
    return perform<"ExecutionCancellation">(this.#call, "workflows.cancel", given);
  }

  state(...[id, executionId, query]: Of<RouteWorkflows, "state">) {
    return perform<"ExecutionState">(this.#call, "workflows.getState", { params: { id, executionId }, query });
  }
}
