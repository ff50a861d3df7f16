/** `penstock eval`: the cases of the shipped service.yaml, and the command as a process. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { PENSTOCK, penstock, ROOT } from "./support/command-line.ts";
import { failure, says, saysJson, startOpenAIUpstream } from "./support/openai-upstream.ts";
import { pluginFolder } from "./support/plugin-folder.ts";

const EVALS = join(ROOT, "test/evals");
const LETTER =
  "Dear Ada,\n\nyour standing desk arrives two days later than we promised, and we are sorry about that. Thank you for your patience!\n\nHarbour Goods";
const APOLOGY =
  "Dear Ada,\n\nwe are sorry that your order gave you trouble. Your refund is on its way.\n\nHarbour Goods";
const VERDICT = { reason: "It is warm, says sorry, and has three sentences.", answer: "yes" };

/** `PENSTOCK_RECORD=1` makes the cassettes anew, from a provider of this process: a test has no key. */
async function record(t: TestContext): Promise<void> {
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  upstream.fallback(({ body, lastUserText }) => {
    if (body.response_format !== undefined) return saysJson(VERDICT, { chunks: 4 });
    return says(lastUserText.includes("two days late") ? LETTER : APOLOGY, { chunks: 4 });
  });
  await rm(join(EVALS, "cassettes"), { recursive: true, force: true });
  const env = { OPENAI_BASE_URL: upstream.baseURL, WRITER_MODEL: "openai/gpt-5-mini" };
  const made = await penstock(["eval", join(EVALS, "support.yaml"), "--record", join(EVALS, "cassettes")], { env });
  assert.equal(made.code, 0, made.stdout + made.stderr);
}

test("penstock eval: the shipped service.yaml passes its own cases, offline, with what a model answered from cassettes", async (t) => {
  if (process.env.PENSTOCK_RECORD) await record(t);
  const cwd = pluginFolder(t, {});
  const args = ["eval", join(EVALS, "support.yaml"), "-c", join(ROOT, "service.yaml"), "--json"];
  const env = { WRITER_MODEL: "openai/gpt-5-mini" };
  const { code, stdout, stderr } = await penstock([...args, "--replay", join(EVALS, "cassettes")], { cwd, env });
  assert.deepEqual([code, stderr], [0, ""], stdout);
  const { passed, cases } = JSON.parse(stdout);
  assert.deepEqual([passed, cases.length], [true, 7]);
  assert.deepEqual(await readdir(cwd), []);
});

const MANIFEST = `name: Shop
store: sqlite:data/shop.db
providers:
  demo:
    use: scripted
    replies:
      - { when: down, error: unavailable }
      - { when: "A-1", call: { tool: add, input: { a: 1, b: 2 } }, then: "It is {{ result.sum }}." }
      - { when: "as JSON", text: '{"city": "Lisbon"}' }
      - { when: "says sorry", object: { answer: no, reason: "It says nothing." } }
tools: { add: { use: add } }
agents:
  clerk: { model: demo/echo, tools: [add], memory: false }
  critic: { model: demo/echo, memory: false }
`;
const EVAL_FILE = `defaults: { agent: clerk, judge: { agent: critic } }
cases:
  - { name: adds, input: A-1, expect: { tools: [{ name: add, input: { a: 1 } }], contains: "3", maxTokens: 100 } }
  - { name: writes JSON, input: as JSON, expect: { schema: { type: object, required: [city] } } }
`;

test("penstock eval: a table with what failed, expected and got, JUnit's XML and exit code 1; nothing of it is in the manifest's store", async (t) => {
  const cwd = pluginFolder(t, {
    "service.yaml": MANIFEST,
    "evals.yaml": `${EVAL_FILE}  - { name: 'is "sorry" & <more>', input: Hello, expect: { judge: Does it say that it says sorry?, tools: [] } }
  - { name: is down, input: down }
  - name: is wrong
    input: A-1
    expect: { tools: [add, add], contains: [It, packed], pattern: "^\\\\d+$", schema: { type: object }, maxTokens: 1 }
`,
  });
  const options = ["--plugins", join(ROOT, "plugins"), "--junit", "report.xml"];
  const { code, stdout, stderr } = await penstock(["eval", "evals.yaml", ...options], { cwd });
  assert.deepEqual([code, stderr], [1, ""], stdout);
  const [head = "", ...lines] = stdout.trimEnd().split("\n");
  assert.match(head, /^CASE {17}RESULT {2}TOKENS {2,}TIME$/);
  const rows = lines.filter((line) => !line.startsWith("  "));
  assert.deepEqual(
    rows.map((row) => row.replace(/ {2,}.*/, "")),
    ["adds", "writes JSON", 'is "sorry" & <more>', "is down", "is wrong", "5 cases: 2 passed, 3 failed"],
  );
  for (const row of rows.slice(0, -1)) assert.match(row, /^.{21}(passed|FAILED) +(\d+|-) +(\d+ ms|\d+\.\d s)$/);
  const failures = lines.filter((line) => line.startsWith("  "));
  assert.match(failures[1]!, /^ {2}answer: expected an answer, got model provider failed: unavailable/);
  assert.deepEqual(failures.toSpliced(1, 1), [
    "  judge: expected yes to: Does it say that it says sorry?, got no: It says nothing.",
    "  tools: expected add, add, got add",
    '  contains: expected "packed", got "It is 3."',
    '  pattern: expected /^\\d+$/, got "It is 3."',
    '  schema: expected an answer of this schema, got no JSON: "It is 3."',
    `  maxTokens: expected at most 1, got ${/is wrong +FAILED +(\d+)/.exec(stdout)![1]}`,
  ]);
  const xml = await readFile(join(cwd, "report.xml"), "utf8");
  assert.match(xml, /<testsuite name="evals.yaml" tests="5" failures="3" errors="0" time="\d+\.\d{3}">/);
  assert.match(xml, /<testcase classname="evals.yaml" name="is &quot;sorry&quot; &amp; &lt;more&gt;" time="/);
  assert.equal(xml.match(/<failure type="/g)?.length, 7);
  assert.deepEqual((await readdir(cwd)).sort(), ["evals.yaml", "report.xml", "service.yaml"]);
});

test("penstock eval: a wrong file and a wrong manifest are told in one report with line and path, and nothing is asked; exit code 2", async (t) => {
  const wrong = `concurency: 2
defaults: { agent: clerc }
cases:
  - { name: one, input: Hello, expect: { tool: [add], pattern: "(" } }
`;
  const cwd = pluginFolder(t, { "service.yaml": MANIFEST, "evals.yaml": wrong, "bad.yaml": `${MANIFEST}modles: 1\n` });
  const plugins = ["--plugins", join(ROOT, "plugins")];
  const misspelt = await penstock(["eval", "evals.yaml", ...plugins], { cwd });
  assert.deepEqual(misspelt, {
    code: 2,
    stdout: "",
    stderr: `evals.yaml:1:1  concurency: unknown key, did you mean "concurrency"?
evals.yaml:4:42  cases[0].expect.tool: unknown key, did you mean "tools"?
`,
  });
  await writeFile(join(cwd, "evals.yaml"), wrong.replace("concurency", "concurrency").replace("tool:", "tools:"));
  const both = await penstock(["eval", "evals.yaml", "-c", "bad.yaml", "--json", ...plugins], { cwd });
  assert.deepEqual([both.code, both.stderr], [2, ""]);
  const { passed, cases, issues } = JSON.parse(both.stdout);
  assert.deepEqual([passed, cases], [false, []]);
  assert.deepEqual(
    issues.map(({ file, line, path }: Record<string, unknown>) => `${file}:${line} ${path}`),
    ["bad.yaml:15 modles", "evals.yaml:2 defaults.agent", "evals.yaml:4 cases[0].expect.pattern"],
  );
  assert.match(issues[1].message, /^no agent "clerc", did you mean "clerk"\?$/);
  const background = "cases: [{ name: one, agent: clerk, input: Hello, options: { background: true } }]\n";
  await writeFile(join(cwd, "background.yaml"), background);
  const unwaited = await penstock(["eval", "background.yaml", ...plugins], { cwd });
  assert.deepEqual(
    [unwaited.code, unwaited.stderr],
    [2, "background.yaml:1:50  cases[0].options: background makes no sense: a case waits for its answer\n"],
  );
  const [none, noCassettes, unnamed] = await Promise.all([
    penstock(["eval", "none.yaml", ...plugins], { cwd }),
    penstock(["eval", "evals.yaml", "--replay", "none", ...plugins], { cwd }),
    penstock(["eval"], { cwd }),
  ]);
  assert.deepEqual([none.code, none.stderr], [2, "none.yaml:1:1  there is no such file\n"]);
  assert.equal(noCassettes.code, 2, noCassettes.stderr);
  assert.match(unnamed.stderr, /eval needs a FILE, e\.g\. penstock eval evals\.yaml/);
});

test("penstock eval --record and --replay: what a provider answered once is what the cases are checked against later, without it", async (t) => {
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  // No agent uses the provider of the judge.
  const manifest = `name: Shop
providers:
  own: &own { use: openai-compatible, baseURL: "${upstream.baseURL}", apiKey: sk-a-key-of-a-test, retries: 0 }
  critic: *own
agents: { clerk: { model: own/m, memory: false } }
`;
  const evals = `defaults: { agent: clerk, judge: { model: critic/m } }
cases: [{ name: greets, input: Good morning, expect: { contains: to you, judge: Is it polite? } }]
`;
  const cwd = pluginFolder(t, { "service.yaml": manifest, "evals.yaml": evals });
  upstream.replies(says("Good morning to you."), saysJson({ reason: "It greets.", answer: "yes" }));
  const recorded = await penstock(["eval", "evals.yaml", "--record", "cassettes"], { cwd });
  assert.equal(recorded.code, 0, recorded.stdout + recorded.stderr);
  for (const provider of ["own", "critic"])
    assert.equal((await readdir(join(cwd, "cassettes", provider))).length, 1, provider);
  await upstream.close();
  const replayed = await penstock(["eval", "evals.yaml", "--replay", "cassettes"], { cwd });
  assert.equal(replayed.code, 0, replayed.stdout + replayed.stderr);
  assert.equal(upstream.requests.length, 2);
  await writeFile(join(cwd, "evals.yaml"), evals.replace("Good morning", "Good evening"));
  const other = await penstock(["eval", "evals.yaml", "--replay", "cassettes"], { cwd });
  assert.equal(other.code, 1);
  assert.match(other.stdout, /answer: expected an answer, got .*"Good evening" was sent, "Good morning" is recorded/);
});

test("penstock eval: a signal ends the cases that run, others do not begin, and the table says so", async (t) => {
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  upstream.fallback(() => ({ headDelay: Number.POSITIVE_INFINITY }));
  const manifest = `name: Shop
providers: { own: { use: openai-compatible, baseURL: "${upstream.baseURL}", retries: 0 } }
agents: { clerk: { model: own/m, memory: false } }
`;
  const evals = `concurrency: 1
defaults: { agent: clerk }
cases: [{ name: first, input: One }, { name: second, input: Two }]
`;
  const cwd = pluginFolder(t, { "service.yaml": manifest, "evals.yaml": evals });
  const child = spawn(process.execPath, [PENSTOCK, "eval", "evals.yaml"], {
    cwd,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const closed = once(child, "close");
  let stdout = "";
  child.stdout.setEncoding("utf8").on("data", (text) => {
    stdout += text;
  });
  while (upstream.requests.length === 0) await new Promise((done) => setTimeout(done, 10));
  child.kill("SIGINT");
  const [code, signal] = await closed;
  assert.deepEqual([code, signal], [1, null], stdout);
  assert.equal(stdout.match(/answer: expected an answer, got stopped by SIGINT$/gm)?.length, 2, stdout);
  assert.equal(upstream.requests.length, 1);
});

test("penstock eval: a report has no key, also where a provider repeats it in an error", async (t) => {
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  upstream.fallback(({ headers: { authorization } }) =>
    failure(401, { message: `Wrong key ${authorization}, or key ${String(authorization).slice("Bearer ".length)}` }),
  );
  const cwd = pluginFolder(t, {
    "service.yaml": `name: Shop
providers: { own: { use: openai-compatible, baseURL: "${upstream.baseURL}", apiKey: "\${KEY}", retries: 0 } }
agents: { clerk: { model: own/m, memory: false } }
`,
    "evals.yaml": "cases: [{ name: greets, agent: clerk, input: Hello }]\n",
  });
  const env = { KEY: "hunter2-of-the-shop" };
  const { code, stdout, stderr } = await penstock(["eval", "evals.yaml", "--junit", "report.xml"], { cwd, env });
  assert.equal(code, 1);
  assert.match(stdout, /got model provider failed: .*\(Wrong key Bearer \S+, or key \*\*\*\)$/m);
  assert.ok(!`${stdout}${stderr}${await readFile(join(cwd, "report.xml"), "utf8")}`.includes("hunter2"));
});

test("penstock eval: before the cases run a signal ends the process at once, whatever a plugin is busy with", {
  timeout: 60_000,
}, async (t) => {
  const plugin = `import { writeFileSync } from "node:fs";
setInterval(() => {}, 1000);
writeFileSync("loading.txt", "");
await new Promise(() => {});
`;
  const cwd = pluginFolder(t, {
    "plugins/tools/slow.mjs": plugin,
    "service.yaml": MANIFEST,
    "evals.yaml": EVAL_FILE,
  });
  const child = spawn(process.execPath, [PENSTOCK, "eval", "evals.yaml"], { cwd, stdio: "ignore" });
  t.after(() => child.kill("SIGKILL"));
  const closed = once(child, "close");
  while (!(await readdir(cwd)).includes("loading.txt")) await new Promise((done) => setTimeout(done, 10));
  child.kill("SIGINT");
  assert.deepEqual(await closed, [null, "SIGINT"]);
});

test("penstock eval: user, options and messages reach the agent, no more cases run at once than concurrency says, and none longer than server.limits.request", async (t) => {
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  let most = 0;
  upstream.fallback(({ lastUserText }) => {
    most = Math.max(most, upstream.requests.filter(({ completed }) => !completed).length);
    return lastUserText === "hang" ? { headDelay: Number.POSITIVE_INFINITY } : says(lastUserText);
  });
  const manifest = `name: Shop
server: { limits: { request: 4s } }
providers: { own: { use: openai-compatible, baseURL: "${upstream.baseURL}", retries: 0 } }
agents:
  clerk:
    model: own/m
    memory: false
    instructions: "{{ user.id }} has {{ has(user.plan) ? user.plan : 'no plan' }} and speaks {{ context.language }}"
`;
  const evals = `concurrency: 2
defaults: { agent: clerk, user: ada, options: { context: { language: Dutch }, temperature: 0.1 } }
cases:
  - { name: d, input: hang }
  - { name: a, input: one, expect: { contains: one } }
  - { name: b, input: two, user: { id: bob, plan: gold }, options: { temperature: 0.2 } }
  - { name: c, messages: [{ role: user, content: Hi }, { role: assistant, content: Yes? }, { role: user, content: three }] }
`;
  const cwd = pluginFolder(t, { "service.yaml": manifest, "evals.yaml": evals });
  const { code, stdout } = await penstock(["eval", "evals.yaml"], { cwd });
  assert.equal(code, 1, stdout);
  assert.match(stdout, /^ {2}answer: expected an answer, got nothing within 4 s \(server\.limits\.request\)$/m);
  assert.match(stdout, /^4 cases: 3 passed, 1 failed$/m);
  const sent = new Map(upstream.requests.map(({ lastUserText, body }) => [lastUserText, body]));
  const system = (text: string) => sent.get(text).messages[0].content;
  assert.deepEqual(
    [system("one"), system("two")],
    ["ada has no plan and speaks Dutch", "bob has gold and speaks Dutch"],
  );
  assert.deepEqual([sent.get("one").temperature, sent.get("two").temperature], [0.1, 0.2]);
  assert.deepEqual(
    sent.get("three").messages.map(({ role }: { role: string }) => role),
    ["system", "user", "assistant", "user"],
  );
  assert.equal(most, 2);
});

test("penstock eval: neither a store nor vectors of a plugin are opened, and memories with semantic search work", async (t) => {
  const plugin = (define: string) => `import { writeFileSync } from "node:fs";
import { ${define} } from "#plugin";
export default ${define}({ create: () => { writeFileSync("${define}.txt", ""); throw new Error("not in an eval"); } });
`;
  const memory = "{ memory: { userId: ada, conversationId: first } }";
  const cwd = pluginFolder(t, {
    "plugins/stores/outside.ts": plugin("defineStore"),
    "plugins/vectors/outside.ts": plugin("defineVectors"),
    "service.yaml": `name: Shop
store: "outside:"
providers: { demo: { use: scripted } }
memory: { default: { semantic: { embedding: local/hash, vectors: outside } } }
agents: { clerk: { model: demo/echo } }
`,
    "evals.yaml": `defaults: { agent: clerk }
cases: [{ name: remembers, input: Hello, options: ${memory}, expect: { contains: Hello } }]
`,
  });
  const checked = await penstock(["eval", "evals.yaml"], { cwd });
  assert.deepEqual([checked.code, checked.stderr], [0, ""], checked.stdout);
  assert.deepEqual((await readdir(cwd)).sort(), ["evals.yaml", "plugins", "service.yaml"]);
  const served = await penstock(["serve", "-p", "0"], { cwd });
  assert.match(served.stderr, /not in an eval/);
});
