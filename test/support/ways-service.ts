/** The service of the walk over every way in: an agent with two tools and a memory, and every way to them. */
import { PAY_PLUGIN } from "./approvals.ts";
import { calls, type OpenAIUpstream, says, type UpstreamRequest } from "./openai-upstream.ts";
import { pluginFolder } from "./plugin-folder.ts";
import { type Loose, type ServedUpstream, serveUpstream } from "./served-upstream.ts";

/** A call of a tool, made by itself, or by an agent that is asked for it. */
export interface Act {
  readonly tool: "pay" | "note";
  readonly input: Loose;
  readonly prompt: string;
}
export const pays = (amount: number): Act => ({ tool: "pay", input: { amount }, prompt: `pay ${amount}` });
export const notes = (text: string): Act => ({ tool: "note", input: { text }, prompt: `note ${text}` });

const PLUGINS = {
  "tools/note.mjs": `export default { kind: "tool", name: "note",
    parameters: { type: "object", properties: { text: { type: "string" } }, required: ["text"], additionalProperties: false },
    execute: ({ text }) => { globalThis.penstockPaid.push(text); return { noted: text }; } };`,
  ...PAY_PLUGIN,
  "routes/shop.mjs": `export default { kind: "route", name: "shop", method: "POST", path: "/shop", body: { type: "object" },
    handle: ({ body }, call) => call[body.part][body.method](...body.with) };`,
  "sockets/shop-socket.mjs": `export default { kind: "socket", name: "shop-socket", path: "/shop-socket", async message(peer, data) {
    peer.send(await peer.call.tools.execute(data.tool, data.input).catch((error) => ({ error: error.message }))); } };`,
};

const TOOLS = ["pay", "note"] as const;
const each = <T>(of: (tool: string) => [string, T]): Record<string, T> => Object.fromEntries(TOOLS.map(of));
const step = (tool: string) => (tool === "pay" ? { amount: "{{ input.amount }}" } : { text: "{{ input.text }}" });

const MANIFEST = {
  server: { limits: { body: { default: "64KiB", generation: "80KiB" } } },
  tools: { pay: { use: "pay", approval: true }, note: { use: "note" } },
  memory: { chats: {} },
  agents: { chief: { model: "up/test-model", subAgents: ["clerk"], memory: "chats" } },
  workflows: {
    flow: { steps: [{ id: "one", andThen: { set: { seen: "{{ input }}" } } }] },
    asks: { steps: [{ id: "ask", andAgent: { agent: "clerk", prompt: "{{ input.prompt }}" } }] },
    ...each((tool) => [tool, { steps: [{ id: "do", andThen: { tool, input: step(tool) } }] }]),
    ...each((tool) => [`tap-${tool}`, { steps: [{ id: "do", andTap: { tool, input: step(tool) } }] }]),
  },
  routes: [{ use: "shop" }, { use: "shop-socket" }],
  mcp: { servers: { main: { tools: [...TOOLS], agents: ["clerk"], workflows: ["flow", ...TOOLS] } } },
};

/** The agent `clerk` has both tools and a memory. Its model calls the tool that it is asked for, and else says all that it was told. */
export async function serveWays(
  test: Loose,
  more: Record<string, unknown> = {},
  { plugins = {}, env = {} }: { plugins?: Record<string, string>; env?: Record<string, string> } = {},
): Promise<ServedUpstream> {
  const { agents, ...manifest } = MANIFEST;
  const clerk = { model: "up/test-model", tools: [...TOOLS], memory: "chats" };
  const served = await serveUpstream(
    test,
    { memory: false },
    { ...manifest, agents: { ...agents, clerk }, ...more },
    {
      plugins: [pluginFolder(test, { ...PLUGINS, ...plugins })],
      env: { SERVICE_CONSOLE_ACCESS_KEY: "the-key-of-the-console", ...env },
    },
  );
  served.upstream.fallback(answerTo);
  return served;
}

function answerTo({ lastUserText, toolOutputs, body }: UpstreamRequest): ReturnType<typeof says> {
  const [, delegated] = /^delegate (.*)$/s.exec(lastUserText) ?? [];
  const [, amount] = /\bpay (\d+)/.exec(lastUserText) ?? [];
  const [, text] = /\bnote (\S+)/.exec(lastUserText) ?? [];
  if (toolOutputs.length > 0) return says(JSON.stringify({ done: toolOutputs }));
  if (delegated !== undefined)
    return calls([{ id: "d1", name: "delegate_task", input: { agentId: "clerk", task: delegated } }]);
  if (amount !== undefined) return calls([{ id: "c1", name: "pay", input: { amount: Number(amount) } }]);
  if (text !== undefined) return calls([{ id: "c1", name: "note", input: { text } }]);
  return says(JSON.stringify({ told: body.messages }));
}

/** All that the model was told since a request. */
export const toldSince = ({ requests }: OpenAIUpstream, begin: number): string =>
  JSON.stringify(requests.slice(begin).map(({ body }) => body.messages));
