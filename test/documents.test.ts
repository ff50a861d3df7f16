/** What README.md and docs/ show is run as it stands, with only ports, keys and addresses of the outside world replaced. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { ROUTES } from "../core/api/routes/index.ts";
import { PENSTOCK, run, serve } from "./support/command-line.ts";
import { block, DOCUMENTS, EVERYTHING, FLAGSHIP, folder, merge, README, shell, statusOf } from "./support/documents.ts";
import { npmProject, startRegistry } from "./support/npm-registry.ts";
import { startOpenAIUpstream } from "./support/openai-upstream.ts";
import { dataOf, type Loose } from "./support/served-upstream.ts";
import { startService } from "./support/service.ts";

test("README: npm start serves, curl gets the answer that is printed there, and Ctrl-C stops it all", async (t) => {
  assert.match(block("sh", "npm start"), /^npm ci && npm start\b.*\nnpm ci && npm test\b/);
  // A copy, so that its store is not the reader's own.
  const config = join(await folder(t, { "service.yaml": FLAGSHIP }), "service.yaml");
  const service = await serve(t, ["npm", "start", "--", "--config", config], {
    env: { PORT: "0" },
  });
  const { success, data } = await shell(block("sh", "Where is order A-1002"), service.url);
  assert.equal(success, true);
  assert.match(data.text, /A-1002/);
  assert.ok(README.includes(`\`${data.text}\``), data.text);
  assert.doesNotMatch(service.stdout(), /"level":"warn".*service\.yaml:/);
  await service.interrupt();
  await assert.rejects(fetch(service.url), "the service that npm started has ended too");
  assert.doesNotMatch(service.stdout() + service.stderr(), /\n\s+at /, "without a stack trace");
});

test("docs/memory.md: the commands, one after the other: what is said is kept, read, found and added to", async (t) => {
  const service = await startService(t, FLAGSHIP, { env: {} });
  const told = await shell(block("sh", "has no elevator"), service.url);
  assert.equal(told.success, true);
  const read = await shell(block("sh", "moving/messages"), service.url);
  assert.deepEqual(
    read.data.messages.map(({ role }: Loose) => role),
    ["user", "assistant"],
  );
  const found = await shell(block("sh", "memory/search"), service.url);
  assert.match(found.data.results[0].message.parts[0].text, /no elevator/);
  const elsewhere = block("sh", "lift in my building");
  const asked = await shell(elsewhere, service.url);
  const stranger = await shell(elsewhere.replaceAll("ada", "bob").replaceAll("visit", "other"), service.url);
  assert.ok(
    asked.data.usage.promptTokens > stranger.data.usage.promptTokens,
    "the model is told what ada said elsewhere",
  );
  const created = await shell(block("sh", "Phone call"), service.url);
  assert.deepEqual([created.data.conversation.id, created.data.conversation.userId], ["call-17", "ada"]);
  const saved = await shell(block("sh", "save-messages"), service.url);
  assert.deepEqual(saved.data, { saved: 2 });
  const { conversations } = await dataOf(service.get("/api/memory/conversations?userId=ada"));
  assert.deepEqual(
    conversations.map(({ id }: Loose) => id),
    ["call-17", "visit", "moving"],
  );
});

test("docs/workflows.md: the commands: the refund waits for a person, who says yes", async (t) => {
  const service = await startService(t, FLAGSHIP, { env: {} });
  const waiting = await shell(block("sh", "/workflows/refund/execute"), service.url);
  assert.deepEqual([waiting.data.executionId, waiting.data.status], ["refund-1", "suspended"]);
  const { data } = await shell(block("sh", "refund-1/resume"), service.url);
  assert.deepEqual([data.status, data.result.amount], ["completed", 250]);
});

test("docs/workflows.md: the workflow with every kind of step, written into service.yaml, does what is said beside it", async (t) => {
  const manifest = merge(parse(FLAGSHIP), parse(block("yaml", "Shows every kind of step")));
  const service = await startService(t, manifest, { env: {} });
  const { steps } = await dataOf(service.get("/workflows/invoice"));
  const kinds = new Set(steps.map(({ type }: Loose) => type));
  assert.equal(kinds.size, 7, [...kinds].join());
  const run = (amount: number) =>
    dataOf(service.post("/workflows/invoice/execute", { input: { amount }, options: { executionId: `of-${amount}` } }));
  const small = await run(50);
  assert.deepEqual([small.status, small.result.refundId], ["completed", "R-of-50:pay/pay"]);
  const large = await run(500);
  assert.deepEqual([large.status, large.suspension.reason], ["suspended", "Large amount"]);
  const state = await dataOf(service.get("/workflows/invoice/executions/of-500/state"));
  assert.equal(state.suspension.stepId, "ask");
});

test("docs/observability.md: the log is asked for as it says, and every row of it is named", async (t) => {
  const service = await startService(t, FLAGSHIP);
  service.logger.warn("seen");
  const { data } = await shell(block("sh", "/api/logs"), service.url);
  assert.equal(data[0].msg, "seen");
  const section = DOCUMENTS.get("docs/observability.md")!;
  for (const path of ["/api/logs", "/observability/logs", "/observability/traces/:traceId/logs", "/spans/:spanId/logs"])
    assert.ok(section.includes(path), path);
});

test("docs/observability.md: the traces are asked for as it says, and a run is among them", async (t) => {
  const service = await startService(t, FLAGSHIP, { env: {} });
  await dataOf(service.post("/agents/support/text", { input: "Hello" }));
  const { data } = await shell(block("sh", "/observability/traces"), service.url);
  assert.equal(data.traces.length, 1);
  const { spans } = await dataOf(service.get(`/observability/traces/${data.traces[0].traceId}`));
  assert.equal(spans[0].attributes["entity.id"], "support");
});

test("docs/console.md: the commands install one newer package, then all of them", async (t) => {
  const registry = await startRegistry(t, { ajv: ["8.0.0", "8.1.0"], tiny: ["1.0.0", "2.0.0"] });
  const dependencies = { ajv: "8.0.0", tiny: "1.0.0" };
  const { folder: project, env } = npmProject(t, registry.url, { dependencies }, dependencies);
  const [, setting = ""] = /`(updates: \{ install: true \})`/.exec(DOCUMENTS.get("docs/console.md")!)!;
  const service = await startService(t, merge(parse(FLAGSHIP), parse(setting)), { project, env });
  const installed = () => JSON.parse(readFileSync(join(project, "package.json"), "utf8")).dependencies;
  const [one = "", all = ""] = block("sh", "/updates/ajv").trimEnd().split("\n");
  assert.equal((await shell(one, service.url)).success, true);
  assert.deepEqual(installed(), { ajv: "8.1.0", tiny: "1.0.0" });
  assert.equal((await shell(all, service.url)).success, true);
  assert.deepEqual(installed(), { ajv: "8.1.0", tiny: "2.0.0" });
});

test("docs/access.md: who may call what, with the token that is made there", async (t) => {
  const env = {
    NODE_ENV: "production",
    JWT_SECRET: "a secret of the identity provider",
    SERVICE_CONSOLE_ACCESS_KEY: "a key of the console",
  };
  const manifest = merge(parse(FLAGSHIP), parse(block("yaml", "mode: authNext")));
  const service = await startService(t, manifest, { env });
  const text = JSON.parse((await ranWith(`${block("sh", "TOKEN=$(node")}\n${block("sh", "Do you know me?")}`)).stdout);
  assert.equal(text.success, true, text.error);
  const { data } = JSON.parse((await ranWith(block("sh", "x-console-access-key"))).stdout);
  assert.deepEqual(
    data.map(({ id }: Loose) => id),
    ["support", "writer"],
  );
  for (const path of ["/agents", "/delivery/Berlin"]) assert.equal((await service.get(path)).status, 401, path);
  assert.equal((await service.get("/hello")).status, 200);
  assert.equal((await service.get(`/ui?key=${encodeURIComponent(env.SERVICE_CONSOLE_ACCESS_KEY)}`)).status, 200);

  const cwd = await folder(t, { "service.yaml": JSON.stringify(manifest) });
  const [, command = "", rows] =
    /^\$ ([^\n]*)\n(.*)$/s.exec(block("console", "/(hello|delivery|ws/ticker|tools)")) ?? [];
  const own = command.replace("npx penstock-gateway", `"${process.execPath}" "${PENSTOCK}"`);
  assert.equal((await run("sh", ["-c", own], { cwd, env })).stdout, rows);

  async function ranWith(script: string) {
    const ended = await run("sh", ["-c", script.replaceAll("http://127.0.0.1:3141", service.url)], { env });
    assert.equal(ended.code, 0, ended.stderr);
    return ended;
  }
});

test("docs/access.md: without auth on the loopback, a Host that allowedHosts names is answered, and another one is refused", async (t) => {
  const manifest = merge(parse(FLAGSHIP), parse(block("yaml", "allowedHosts")));
  const service = await startService(t, manifest, { env: {} });
  const ask = (host: string, path: string) => statusOf(`-H 'Host: ${host}' ${service.url}${path}`);
  assert.equal(await ask("penstock.test:80", "/agents"), "200");
  assert.equal(await ask("LOCALHOST:3141", "/agents"), "200");
  assert.equal(await ask("shop.example", "/agents"), "403");
  assert.equal(await ask("shop.example", "/healthz"), "200");
});

test("docs/access.md: a POST from a page of another origin is refused unless it is marked as JSON", async (t) => {
  const service = await startService(t, FLAGSHIP, { env: {} });
  const page = `-d '{"input": "Hello"}' -H 'Origin: https://shop.example' ${service.url}/agents/support/text`;
  assert.equal(await statusOf(page), "403");
  assert.equal(await statusOf(`-H 'content-type: application/json' ${page}`), "200");
});

test("docs/deployment.md: the limits that are shown, written into service.yaml, are those of the service", async (t) => {
  const snippet = parse(block("yaml", "streamBuffer: 1MiB"));
  const { manifest } = (await startService(t, merge(parse(FLAGSHIP), snippet), { env: {} })).service;
  const { streamBuffer, stall, uploads, executions } = manifest.server.limits;
  assert.deepEqual([streamBuffer, stall, uploads, executions], [2 ** 20, 120_000, 2 ** 28, 10_000]);
});

test("docs/workflows.md: every row of the workflow API is named", () => {
  const section = DOCUMENTS.get("docs/workflows.md")!;
  const paths = ROUTES.filter(({ operation }) => operation.startsWith("workflows.")).map(({ path }) => path);
  assert.ok(paths.length > 0);
  for (const path of paths) {
    const short = path.replace("/workflows/:id/executions/", ".../executions/");
    const shortest = path.slice(path.lastIndexOf("/"));
    assert.ok(section.includes(path) || section.includes(short) || section.includes(`\`${shortest}\``), path);
  }
});

test("docs/memory.md: every row of the memory API is named", () => {
  const section = DOCUMENTS.get("docs/memory.md")!;
  const paths = ROUTES.filter(({ operation }) => operation.startsWith("memory.")).map(({ path }) => path);
  assert.ok(paths.length > 0);
  for (const path of paths) {
    const short = path.replace("/api/memory/conversations/", ".../");
    assert.ok(section.includes(path) || section.includes(short), path);
  }
});

test("README: the provider snippet, written into service.yaml, sends the agent's calls to that provider", async (t) => {
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  const snippet = block("yaml", "openai:").replace("https://api.openai.com/v1", upstream.baseURL);
  assert.ok(snippet.includes(upstream.baseURL));
  const manifest = merge(parse(FLAGSHIP), parse(snippet));
  const service = await startService(t, manifest, { env: { OPENAI_API_KEY: "sk-readme" } });
  const { text } = await dataOf(service.post("/agents/support/text", { input: "Good morning" }));
  assert.equal(text, "Good morning");
  assert.equal(upstream.requests[0]?.headers.authorization, "Bearer sk-readme");
  const { model, max_completion_tokens, max_tokens, temperature } = upstream.requests[0]!.body;
  assert.deepEqual([model, max_completion_tokens, max_tokens, temperature], ["gpt-5-mini", 8000, undefined, undefined]);
});

test("README: without the provider's key, and without a provider's package, check says what to do", async (t) => {
  const keyless = JSON.stringify(merge(parse(FLAGSHIP), parse(block("yaml", "openai:"))));
  const [, line] = /`(claude: \{.*?\})`/s.exec(EVERYTHING) ?? [];
  assert.ok(line, "a provider package is shown");
  // Some packages are installed here, for other tests: one that is not takes its place.
  const packaged = {
    providers: parse(line.replace("\n", " ").replace("@ai-sdk/anthropic", "@ai-sdk/cerebras")),
    agents: { a: { model: "claude/any" } },
  };
  const path = await folder(t, { "key.yaml": keyless, "package.yaml": JSON.stringify(packaged) });
  const check = (name: string, env = {}) =>
    run(process.execPath, [PENSTOCK, "check", "--config", name], { cwd: path, env });
  const key = await check("key.yaml");
  assert.equal(key.code, 1);
  assert.match(key.stderr, /^key\.yaml:\d+:\d+ {2}providers\.openai\.apiKey: .*OPENAI_API_KEY is not set$/m);
  const missing = await check("package.yaml", { ANTHROPIC_API_KEY: "x" });
  assert.equal(missing.code, 1);
  assert.match(missing.stderr, /providers\.claude\.use: .*"@ai-sdk\/cerebras" is not installed: run npm install/);
});

test("README: the manifest example boots, greets, and adds", async (t) => {
  const service = await startService(t, block("yaml", "name: Greeter"), { env: {} });
  const { text } = await dataOf(service.post("/agents/greeter/text", { input: "Hello" }));
  assert.equal(text, "Hello");
  const sum = await dataOf(service.post("/tools/add/execute", { input: { a: 2, b: 3 } }));
  assert.deepEqual(sum.result, { sum: 5 });
  const tools = await dataOf(service.get("/tools"));
  assert.deepEqual(
    tools.map(({ name }: Loose) => name),
    ["add", "forecast"],
  );
});

test("README and docs/manifest.md: check, explain and routes print what is shown below them", async (t) => {
  const greeter = block("yaml", "name: Greeter");
  const right = await folder(t, { "greeter.yaml": greeter });
  const wrong = await folder(t, { "greeter.yaml": greeter.replace("    model:", "    modle:") });
  const transcript = block("console", "penstock-gateway check") + block("console", "penstock-gateway explain");
  const steps = transcript.split(/^\$ /m).slice(1);
  assert.equal(steps.length, 4);
  for (const step of steps) {
    const [command = "", ...lines] = step.trimEnd().split("\n");
    assert.match(command, /^npx penstock-gateway (check|explain|routes)/);
    const misspelt = command.includes(" check ");
    const own = command.replace("npx penstock-gateway", `"${process.execPath}" "${PENSTOCK}"`);
    const { code, stdout, stderr } = await run("sh", ["-c", own], { cwd: misspelt ? wrong : right });
    assert.equal((stdout + stderr).trimEnd(), lines.join("\n"), command);
    assert.equal(code, misspelt ? 1 : 0, command);
  }
});

test("docs/plugins.md: the plugin example is found in its folder, and the curl below it gets its result", async (t) => {
  const source = block("ts", "// tools/gross.ts");
  const [, file] = /^\/\/ (tools\/\S+)\n/.exec(source) ?? [];
  const path = await folder(t, { [`plugins/${file}`]: source });
  const manifest = merge(parse(FLAGSHIP), parse(block("yaml", "gross: { use: gross }")));
  const service = await startService(t, manifest, { plugins: [join(path, "plugins")] });
  const { data } = await shell(block("sh", "/tools/gross/execute"), service.url);
  assert.deepEqual(data.result, { gross: 119 });
});
