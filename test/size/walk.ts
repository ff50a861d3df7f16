/**
 * Which functions of core/ run for seven requests: `node --import ./test/size/recorder.mjs --import tsx test/size/walk.ts`, a process of
 * its own, which prints them as JSON. Service, client and provider are in this one process, so that a reply is read in the turn of the
 * event loop after it was sent, however busy the machine is.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { says, startOpenAIUpstream } from "../support/openai-upstream.ts";

/** Each walk is counted so often; a function is of the walk if it ran each time. */
const TIMES = 4;
/** Requests before anything is counted: the first ones fill caches. */
const WARM = 3;
/** Milliseconds in which what runs by itself (heartbeats, polls) has run once. */
const IDLE_MS = 1_500;
/** Milliseconds without a call, after which what a request has set off is over. */
const QUIET_MS = 350;

const global = globalThis as unknown as { entered(call: string): void };
/** What runs without a request. */
const idle = new Set<string>();
let seen = new Set<string>();
let last = 0;
global.entered = (call) => {
  seen.add(call);
  if (!idle.has(call)) last = performance.now();
};

const tool = (name: string) => `import { defineTool } from "#plugin";
export default defineTool({ name: "${name}", description: "${name}", parameters: { type: "object" }, execute: async () => ({ ok: true }) });
`;
const manifest = (provider: string) => `
name: walks
version: 0.1.0
server: { host: 127.0.0.1, port: 0 }
store: "sqlite:data/walks.db"
logs: { level: error }
providers:
  up: { use: openai-compatible, baseURL: "${provider}" }
memory: { default: { contextLimit: 10 } }
tools:
  pay: { use: pay, approval: true }
  free: { use: free }
agents:
  plain: { name: P, description: d, instructions: Be short., model: up/m, memory: false }
  mem: { name: M, description: d, instructions: Be short., model: up/m, memory: default }
workflows:
  two: { name: W, purpose: p, steps: [ { id: a, andThen: { tool: free, input: { n: 1 } } }, { id: b, andThen: { set: { x: "{{ data }}" } } } ] }
  asks: { name: A, purpose: p, steps: [ { id: a, andThen: { tool: pay, input: { n: 1 } } } ] }
`;

interface Walk {
  name: string;
  request(made: string): Promise<unknown>;
  /** What must be there before; not counted. */
  prepare?(): Promise<string>;
  /** Whether what it sets off after its reply is of the walk. */
  whole?: boolean;
}

const folder = mkdtempSync(join(tmpdir(), "penstock-walks-"));
mkdirSync(join(folder, "plugins/tools"), { recursive: true });
for (const name of ["pay", "free"]) writeFileSync(join(folder, `plugins/tools/${name}.ts`), tool(name));
const upstream = await startOpenAIUpstream();
upstream.fallback(() => says("hi there!", { chunks: 3 }));
writeFileSync(join(folder, "service.yaml"), manifest(upstream.baseURL));
process.chdir(folder);
const { start } = await import("../../core/app/start.ts");
const service = await start({ config: join(folder, "service.yaml") });

async function send(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
  const init = { method, headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) };
  const response = await fetch(service.url + path, init);
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return JSON.parse(text).data;
}
const post = (path: string, body: unknown, headers?: Record<string, string>) => send("POST", path, body, headers);

/** An approval that waits to be answered. */
async function asked(): Promise<string> {
  await post("/workflows/asks/execute", { input: {}, options: { background: true } });
  for (;;) {
    const [open] = await send("GET", "/approvals?status=open");
    if (open !== undefined) return open.approvalId;
    await sleep(20);
  }
}

const memory = { userId: "u", conversationId: "c" };
const WALKS: readonly Walk[] = [
  { name: "list", request: () => send("GET", "/agents") },
  { name: "text", request: () => post("/agents/plain/text", { input: "hi" }) },
  { name: "text-memory", request: () => post("/agents/mem/text", { input: "hi", options: { memory } }) },
  {
    name: "text-key",
    request: () => post("/agents/plain/text", { input: "hi" }, { "idempotency-key": crypto.randomUUID() }),
  },
  {
    name: "text-background",
    request: () => post("/agents/plain/text", { input: "hi", options: { background: true } }),
    whole: true,
  },
  { name: "workflow", request: () => post("/workflows/two/execute", { input: {} }) },
  { name: "approval", request: (id) => post(`/approvals/${id}`, { approved: true }), prepare: asked, whole: true },
];

async function quiet(): Promise<void> {
  last = performance.now();
  while (performance.now() - last < QUIET_MS) await sleep(20);
}

async function counted({ request, prepare, whole = false }: Walk): Promise<Set<string>> {
  const made = (await prepare?.()) ?? "";
  await quiet();
  seen = new Set();
  await request(made);
  if (whole) await quiet();
  return new Set(seen);
}

/** The calls of one walk, in the order of their first time. */
async function walked(walk: Walk): Promise<string[]> {
  const all: Set<string>[] = [];
  for (let time = 0; time < TIMES; time += 1) all.push(await counted(walk));
  return [...all[0]!].filter((call) => !idle.has(call) && all.every((each) => each.has(call)));
}

for (const { request, prepare } of WALKS)
  for (let time = 0; time < WARM; time += 1) await request((await prepare?.()) ?? "");
await sleep(QUIET_MS);
seen = new Set();
await sleep(IDLE_MS);
for (const call of seen) idle.add(call);
const walks: Record<string, string[]> = {};
for (const walk of WALKS) walks[walk.name] = await walked(walk);
process.stdout.write(JSON.stringify(walks), () => {
  rmSync(folder, { recursive: true, force: true });
  process.exit(0);
});
