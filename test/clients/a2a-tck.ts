/**
 * `npm run test:tck -- FOLDER [arguments of pytest]`: the A2A project's own suite (repository a2aproject/a2a-tck, branch 1.0-dev or 0.3.x), as
 * it is shipped, against a service with the agent that its `scenarios/` ask for. FOLDER is a checkout of it. `PYTHON` is an interpreter that has
 * what its pyproject.toml names (pytest-html is not needed). Exits as pytest does.
 *
 * The suite says what the agent shall do by how a message's id begins, which no agent sees: so a proxy before the service notes it, and adds
 * to a message for a task the data part which answers an approval. It also makes the ids unique: the suite sends several messages with one
 * id, and here a message that comes again gives the task of the first. With `TCK_IDS=kept` it leaves them.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { pluginFolder } from "../support/plugin-folder.ts";
import { startService } from "../support/service.ts";

const [folder, ...rest] = process.argv.slice(2);
if (folder === undefined) throw new Error("usage: npm run test:tck -- FOLDER [arguments of pytest]");

const isOld = existsSync(join(folder, "tests/mandatory"));
const ends: (() => unknown)[] = [];
const context = { after: (end: () => unknown) => void ends.push(end) };

/** What the suite's last message asks for: the id of the message. The model, which runs in this process, reads it. */
const asked = globalThis as { tckAsked?: string };

const MODEL = `
const TEXTS = { "artifact-text": "Generated text content", "stream-001": "Stream hello from TCK", "stream-003": "Stream task lifecycle",
  "stream-ordering-001": "Ordered output", "stream-artifact-text": "Streamed text content" };
const TOOLS = { "input-required": "ask", "artifact-file-url": "link", "artifact-file": "file", "artifact-data": "data", "stream-artifact-file": "file" };
const named = (table) => Object.entries(table).find(([name]) => (globalThis.tckAsked ?? "").startsWith("tck-" + name + "-"))?.[1];
const tokens = { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 };
let calls = 0;
export default { kind: "provider", name: "tck", create: () => ({ languageModel: (id) => ({ specificationVersion: "v3", provider: "tck",
  modelId: id, supportedUrls: {}, doStream: async ({ prompt }) => {
    const tool = named(TOOLS);
    const called = prompt.at(-1).role === "tool" && tool !== "ask";
    const text = called ? "" : named(TEXTS) ?? "Hello from TCK";
    const parts = tool !== undefined && !called
      ? [{ type: "tool-call", toolCallId: "c" + ++calls, toolName: tool, input: "{}" }]
      : text === "" ? [] : [{ type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: text }, { type: "text-end", id: "t" }];
    const finishReason = { unified: tool !== undefined && !called ? "tool-calls" : "stop", raw: "stop" };
    const usage = { inputTokens: tokens, outputTokens: { total: 1, text: 1, reasoning: 0 } };
    return { stream: ReadableStream.from([{ type: "stream-start", warnings: [] }, ...parts, { type: "finish", finishReason, usage }]) };
  } }) }) };`;

const tool = (name: string, result: object) => ({
  [`tools/${name}.mjs`]: `export default { kind: "tool", name: "${name}", execute: () => (${JSON.stringify(result)}) };`,
});
const file = (more: object) => ({
  type: "content",
  value: [{ mediaType: "text/plain", filename: "output.txt", ...more }],
});
const base64 = (text: string) => Buffer.from(text).toString("base64");

const plugins = pluginFolder(context, {
  "providers/tck.mjs": MODEL,
  ...tool("ask", {}),
  ...tool("file", file({ type: "file-data", data: base64("of a tool") })),
  ...tool("link", file({ type: "file-url", url: "https://example.com/output.txt" })),
  ...tool(
    "data",
    file({ type: "file-data", mediaType: "application/json", data: base64('{"key":"value","count":42}') }),
  ),
});

const proxy = createServer(async (request, response) => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const headers = Object.entries(request.headers).filter(([name]) => !/^(host|connection|content-length)$/.test(name));
  const left = new AbortController();
  response.on("close", () => left.abort());
  const answer = await fetch(service.url + request.url, {
    signal: left.signal,
    method: request.method,
    headers: headers as [string, string][],
    ...(chunks.length > 0 && { body: isOld ? Buffer.concat(chunks) : noted(Buffer.concat(chunks)) }),
  });
  const type = answer.headers.get("content-type");
  const kept = [...answer.headers].filter(([name]) => /^(etag|cache-control|vary)$/.test(name));
  response.writeHead(answer.status, { ...Object.fromEntries(kept), ...(type !== null && { "content-type": type }) });
  try {
    for await (const chunk of answer.body ?? []) response.write(chunk);
    response.end();
  } catch {
    response.destroy();
  }
});
proxy.listen(0, "127.0.0.1");
await once(proxy, "listening");
const { port } = proxy.address() as { port: number };
const publicUrl = `http://127.0.0.1:${port}`;

let messages = 0;

/** The body with a unique id for its message, and with what answers a question if that is for a task. */
function noted(body: Buffer): Buffer | string {
  try {
    const request = JSON.parse(body.toString());
    const { message } = request.params;
    if (typeof message.messageId !== "string") return body;
    asked.tckAsked = message.messageId;
    if (process.env.TCK_IDS !== "kept") message.messageId += `-${++messages}`;
    if (message.taskId !== undefined) message.parts.push({ data: { approved: true } });
    return JSON.stringify(request);
  } catch {
    return body;
  }
}

const service = await startService(
  context,
  {
    logs: { level: "warn" },
    server: { publicUrl, push: { enabled: true, allowPrivate: ["127.0.0.1", "::1"] } },
    memory: { default: {} },
    providers: { tck: { use: "tck" } },
    tools: { ask: { use: "ask", approval: true }, file: { use: "file" }, link: { use: "link" }, data: { use: "data" } },
    agents: {
      tck: {
        instructions: "Do as the suite asks.",
        model: "tck/one",
        memory: "default",
        tools: ["ask", "file", "link", "data"],
      },
    },
  },
  { plugins: [plugins] },
);

const suite = isOld
  ? ["tests/mandatory", "tests/optional", `--sut-url=${publicUrl}/a2a/tck`, "--test-scope=all"]
  : ["tests/compatibility/", `--sut-host=${publicUrl}`];
const child = spawn(process.env.PYTHON ?? "python3", ["-m", "pytest", ...suite, "--tb=short", "-q", ...rest], {
  cwd: folder,
  stdio: "inherit",
});
const [code] = await once(child, "exit");
proxy.close();
for (const end of ends) await end();
process.exit(code ?? 1);
