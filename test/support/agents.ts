/** Agents as the service boots them, from a manifest, and what reads their streams. */
import { readFileSync } from "node:fs";
import type { TestContext } from "node:test";
import { pino } from "pino";
import type { Agent } from "../../core/agents/agent.ts";
import { compileAgents } from "../../core/agents/compile.ts";
import type { RunCall } from "../../core/agents/run/caller.ts";
import { EVERYTHING, NOBODY, type User } from "../../core/identity/principal.ts";
import type { EventProducer, EventSink } from "../../core/lib/event-sink.ts";
import { Serialized } from "../../core/lib/serialized.ts";
import { parseManifest } from "../../core/manifest/load.ts";
import { BUILT_IN_PLUGINS } from "../../core/models/builtin.ts";
import { createModels } from "../../core/models/models.ts";
import { createHost } from "../../core/registry/host.ts";
import { loadPlugins } from "../../core/registry/load.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { compileTools } from "../../core/tools/compile.ts";
import type { HistoryPage } from "../../generated/types.ts";
import { createMemories } from "./memories.ts";
import { EXAMPLES, pluginFolder } from "./plugin-folder.ts";

export const silent = pino({ level: "silent" });

/**
 * A provider whose model `id` streams the parts of its configuration, one by one: for what the scripted one never says.
 * The key `pull` of `globalThis[config.probe]` is called before each part.
 */
const PARTS_PROVIDER = `export default { kind: "provider", name: "parts", create: (config) => ({
  retries: 0,
  languageModel: (id) => ({ specificationVersion: "v3", provider: "parts", modelId: id, supportedUrls: {},
    doStream: async (options) => {
      const step = options.prompt.filter((message) => message.role === "tool" || message.role === "assistant").length === 0 ? 0 : 1;
      const parts = [...config.steps[id][step]];
      return { stream: new ReadableStream({ async pull(controller) {
        const part = parts.shift();
        if (part === undefined) controller.close(); else controller.enqueue(part);
      } }) };
    } }) }) };`;

const TOOLS = {
  "tools/meet.mjs": readFileSync(new URL("../fixtures/plugins/tools/meet.mjs", import.meta.url), "utf8"),
  "tools/fail.mjs": `export default { kind: "tool", name: "fail", description: "Fails", execute: () => { throw new Error("the shop is closed"); } };`,
  "tools/cyclic.mjs": `export default { kind: "tool", name: "cyclic", description: "Gives a circle", execute: () => { const a = {}; a.a = a; return a; } };`,
  "tools/nothing.mjs": `export default { kind: "tool", name: "nothing", description: "Gives nothing", execute: () => undefined };`,
  "tools/whoami.mjs": `export default { kind: "tool", name: "whoami", description: "Tells the call",
    execute: (input, call) => ({ user: call.user, context: call.context, requestId: call.requestId, conversationId: call.conversationId, key: call.idempotencyKey }) };`,
  "tools/wait.mjs": `export default { kind: "tool", name: "wait", description: "Waits", execute: async (input, call) => {
    globalThis.penstockTestWaiting = (globalThis.penstockTestWaiting ?? 0) + 1;
    await new Promise((resolve, reject) => { const timer = setTimeout(resolve, input.milliseconds);
      call.signal.addEventListener("abort", () => { clearTimeout(timer); globalThis.penstockTestAborted = (globalThis.penstockTestAborted ?? 0) + 1; reject(new Error("aborted")); }); });
    return { waited: true }; } };`,
};

type Manifest = Record<string, unknown> & { agents: Record<string, object> };

/** The agents of a manifest, which must be without problems. */
export async function agentsOf(test: TestContext, manifest: Manifest): Promise<Map<string, Agent>> {
  const { agents, problems } = await compile(test, manifest);
  if (problems.length > 0)
    throw new Error(problems.map(({ path, message }) => `${path.join(".")}: ${message}`).join("\n"));
  return agents;
}

/** @param store default: one in the process */
export async function compile(test: TestContext, manifest: Manifest, store: Store = createMemoryStore()) {
  const whole = {
    name: "Test",
    version: "1.0.0",
    store: "memory:",
    providers: { demo: { use: "scripted" } },
    ...manifest,
  };
  const loaded = parseManifest(JSON.stringify(whole), { file: "service.yaml", env: {} });
  if (loaded.manifest === null)
    throw new Error(loaded.issues.map(({ path, message }) => `${path}: ${message}`).join("\n"));
  const host = createHost({ logger: silent, env: {} });
  test.after(() => host.close());
  const folder = pluginFolder(test, { "providers/parts.mjs": PARTS_PROVIDER, ...TOOLS });
  const { registry, problems } = await loadPlugins([EXAMPLES, folder], BUILT_IN_PLUGINS);
  const tools = compileTools(loaded.manifest, registry, host);
  const models = await createModels(loaded.manifest, registry, host);
  const memories = await createMemories(loaded.manifest, store);
  const compiled = compileAgents(loaded.manifest, {
    tools: tools.tools,
    models: models.models,
    memories,
    store,
    logger: silent,
  });
  const pluginProblems = problems.map(({ file, cause }) => ({ path: [file], message: cause }));
  return {
    agents: compiled.agents,
    histories: compiled.histories,
    memories,
    problems: [...pluginProblems, ...tools.problems, ...models.problems, ...compiled.problems],
  };
}

/** A page of an agent's history, parsed. */
export async function historyOf(agent: Agent, page: number, limit: number): Promise<HistoryPage> {
  const answer = await agent.history(page, limit, EVERYTHING);
  return answer instanceof Serialized ? JSON.parse(answer.json) : answer;
}

/** One agent called `assistant` on the scripted model. `replies` are its rules. */
export async function assistant(
  test: TestContext,
  agent: object = {},
  rest: { replies?: object[]; provider?: object; tools?: object } = {},
): Promise<Agent> {
  const { replies = [], provider = {}, ...more } = rest;
  const agents = await agentsOf(test, {
    providers: { demo: { use: "scripted", replies, ...provider } },
    agents: { assistant: { name: "Assistant", model: "demo/echo", ...agent } },
    ...more,
  });
  return agents.get("assistant")!;
}

/** A caller. `leave` is the client going away. */
export function caller(user: User | null = null): RunCall & { leave(): void; signals: number } {
  const controller = new AbortController();
  return {
    user,
    caller: user === null ? NOBODY : { kind: "user" },
    requestId: "request-1",
    logger: silent,
    signals: 0,
    get signal() {
      this.signals++;
      return controller.signal;
    },
    leave: () => controller.abort(new Error("the client has left")),
  };
}

/** Takes the events of a stream, parsed. */
export class Events implements EventSink {
  readonly list: Record<string, unknown>[] = [];
  closed = false;
  opened = false;
  /** Makes the reader slow: awaited by the producer after each event. */
  pause: (() => Promise<void>) | undefined;
  /** Called with each event. */
  onEvent: ((event: Record<string, unknown>) => void) | undefined;

  open(): void {
    this.opened = true;
  }

  onLeave(): void {}

  send(json: string): Promise<void> | undefined {
    if (json.includes("\n")) throw new Error("an event must be one line");
    const event = JSON.parse(json);
    this.opened = true;
    this.list.push(event);
    this.onEvent?.(event);
    return this.pause?.();
  }

  types(): unknown[] {
    return this.list.map((event) => event.type);
  }

  of(type: string): Record<string, unknown>[] {
    return this.list.filter((event) => event.type === type);
  }
}

export async function eventsOf(produce: EventProducer | Promise<EventProducer>): Promise<Events> {
  const events = new Events();
  await (await produce)(events);
  return events;
}

export const usage = (promptTokens: number, completionTokens: number) => ({
  promptTokens,
  completionTokens,
  totalTokens: promptTokens + completionTokens,
  cachedInputTokens: 0,
  reasoningTokens: 0,
});
