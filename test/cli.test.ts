/** The command line, as a process: flags, exit codes, and what goes to which stream. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { transform } from "esbuild";
import { type Call, CHECKOUT, PENSTOCK, penstock, ROOT, run, serve, signalGroup } from "./support/command-line.ts";
import { EXAMPLES } from "./support/plugin-folder.ts";
import { onPort } from "./support/ports.ts";
import { programMissing } from "./support/programs.ts";

const QUIET =
  "name: Quiet\nproviders: { demo: { use: scripted, chunks: 100, delay: 100ms } }\nagents: { a: { model: demo/echo } }\n";

async function folder(t: TestContext, files: Record<string, string>): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "penstock-cli-"));
  t.after(() => rm(path, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(path, name)), { recursive: true });
    await writeFile(join(path, name), text);
  }
  return path;
}

const start = (t: TestContext, args: string[], call?: Call) => serve(t, [process.execPath, PENSTOCK, ...args], call);

test("penstock --help lists every command and option, --version says the package's version; both exit 0", async () => {
  const help = await penstock(["--help"]);
  assert.deepEqual([help.code, help.stderr], [0, ""]);
  const commands = ["serve", "dev", "check", "explain PATH", "routes", "reindex", "generate"];
  const ofStore = ["backup FILE", "restore FILE", "export FILE", "import FILE", "migrate", "vacuum"];
  for (const word of [...commands, ...ofStore]) assert.match(help.stdout, new RegExp(`^  ${word} `, "m"));
  for (const option of ["--config FILE", "--plugins DIR", "--port N", "--host H"])
    assert.match(help.stdout, new RegExp(`^  ${option} `, "m"));
  const { version } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"));
  const { code, stdout } = await penstock(["--version"]);
  assert.deepEqual([code, stdout], [0, `${version}\n`]);
});

test("penstock: a mistake in the call exits 2, says which, and starts nothing", async () => {
  const mistakes: [string[], RegExp][] = [
    [["client", "--check", "--out", "-"], /--check needs a file to compare: --out FILE/],
    [["chekc"], /unknown command "chekc", did you mean check\?/],
    [["constructor"], /unknown command "constructor"/],
    [["--prot", "1"], /unknown option --prot, did you mean --port\?/],
    [["--port"], /--port.* argument missing/],
    [["--port", "abc"], /--port must be a number from 0 to 65535, not "abc"/],
    [["--port", "65536"], /--port must be a number/],
    [["--port", ""], /--port must be a number/],
    [["--port", "1e3"], /--port must be a number/],
    [["explain"], /explain needs a PATH, e\.g\. penstock explain server\.port/],
    [["backup"], /backup needs a FILE, e\.g\. penstock backup backup\.db/],
    [["explain", "server", "host"], /explain takes no "host"/],
    [["serve", "other.yaml"], /serve takes no "other\.yaml"/],
    [["check", "--check"], /--check belongs to generate/],
    [["executions"], /executions needs one of list, end, retry/],
    [["executions", "lst"], /executions needs one of list, end, retry, did you mean list\?/],
    [["executions", "end"], /executions end needs an ID, e\.g\. penstock executions end refund-1/],
    [["executions", "list", "--user", "ada"], /--user belongs to executions end and executions retry/],
    [["executions", "retry", "x", "--reason", "y"], /--reason belongs to executions end/],
    [["init", "--from", "openapi"], /init --from openapi needs a FILE, e\.g\. penstock init my-service --from openapi/],
    [["init", "x", "--template", "cat"], /--template must be one of chat, workflow, rag, not "cat"/],
    [["init", "x", "--from", "swagger"], /--from must be openapi, not "swagger"/],
    [["init", "x", "y"], /init takes no "y"/],
    [["serve", "--json"], /--json belongs to check/],
  ];
  const ends = await Promise.all(mistakes.map(([args]) => penstock(args)));
  for (const [index, [args, message]] of mistakes.entries()) {
    const { code, stdout, stderr } = ends[index]!;
    assert.equal(code, 2, args.join(" "));
    assert.equal(stdout, "", args.join(" "));
    assert.match(stderr, message);
    assert.match(stderr, /^penstock: .*\nRun penstock --help for the commands and options\.\n$/);
  }
});

test("penstock check: a .js plugin with export default, in a folder without package.json and without TypeScript beside it, loads", async (t) => {
  const ways: Record<string, Record<string, string>> = {
    alone: {},
    "with helpers": {
      "plugins/tools/words/word.js": 'export const word = "hello";',
      "plugins/tools/words/old.cjs": "module.exports = 1;",
    },
    CommonJS: {},
  };
  const sources: Record<string, string> = {
    alone: 'export default { kind: "tool", description: "Greets", execute: async () => "hello" };',
    "with helpers": `import { ServiceError } from "#plugin";
      import { word } from "./words/word.js";
      import old from "./words/old.cjs";
      const now = await Promise.resolve(word);
      export default { kind: "tool", description: now, execute: () => { throw new ServiceError("conflict", now + old); } };`,
    CommonJS: 'module.exports = { kind: "tool", description: "Greets", execute: async () => "hello" };',
  };
  const manifest = `${QUIET}tools: { hello: { use: hello } }\n`;
  await Promise.all(
    Object.entries(ways).map(async ([way, others]) => {
      const cwd = await folder(t, { "service.yaml": manifest, "plugins/tools/hello.js": sources[way]!, ...others });
      const { code, stderr } = await penstock(["check"], { cwd });
      assert.deepEqual([code, stderr], [0, ""], way);
    }),
  );
  if (PENSTOCK === CHECKOUT) return;
  // From the sources, each in a folder of its own, but in one start: it takes as long as five of the build.
  const files: [string, string][] = Object.entries(ways).flatMap(([way, others]) => [
    [`${way}/plugins/tools/hello.js`, sources[way]!.replace('"tool", ', `"tool", name: "${way.replace(" ", "-")}", `)],
    ...Object.entries(others).map(([name, text]): [string, string] => [`${way}/${name}`, text]),
  ]);
  const folders = Object.keys(ways).flatMap((way) => ["--plugins", `${way}/plugins`]);
  const all = `${QUIET}tools: { alone: { use: alone }, helped: { use: with-helpers }, common: { use: CommonJS } }\n`;
  const cwd = await folder(t, { "service.yaml": all, ...Object.fromEntries(files) });
  const { code, stderr } = await run(process.execPath, [CHECKOUT, "check", ...folders], { cwd });
  assert.deepEqual([code, stderr], [0, ""]);
});

test("penstock: every problem of a manifest is on standard error in one report, by check and by serve; exit 1", async (t) => {
  const cwd = await folder(t, {
    "service.yaml": `server: { prot: 1 }
providers: { demo: { use: scripted } }
agents:
  a: { model: demo/echo, tools: [nothing], maxSteps: 0 }
  b: { modle: demo/echo }
routes: [{ use: nowhere }]
`,
    "plugins/tools/broken.ts": "export default { kind: 'tool', excute: () => 1 };",
  });
  const report = `plugins/tools/broken.ts:1:1  .*unknown key "excute", did you mean "execute"\\?
service.yaml:1:11  server.prot: unknown key, did you mean "port"\\?
service.yaml:4:34  agents.a.tools\\[0\\]: unknown tool "nothing".*
service.yaml:4:44  agents.a.maxSteps: must be >= 1
service.yaml:5:8  agents.b.modle: unknown key, did you mean "model"\\?
service.yaml:6:12  routes\\[0\\].use: unknown route plugin "nowhere".*
`;
  for (const command of ["check", "serve"]) {
    const { code, stdout, stderr } = await penstock([command, "--plugins", "plugins", "--port", "0"], { cwd });
    assert.deepEqual([code, stdout], [1, ""]);
    const chapter = command === "check" ? "see docs/reference/manifest.md: server\n" : "";
    assert.match(stderr, new RegExp(`^${report}${chapter}$`), stderr);
  }
});

test("penstock check: a sound manifest exits 0; one that is not there, or is a folder, exits 1 and says so", async (t) => {
  const cwd = await folder(t, { "service.yaml": QUIET });
  const sound = await penstock(["check"], { cwd });
  assert.deepEqual(sound, { code: 0, stdout: "service.yaml is valid\n", stderr: "" });
  const missing = await penstock(["check", "--config", "none.yaml"], { cwd });
  assert.deepEqual(missing, {
    code: 1,
    stdout: "",
    stderr: "none.yaml:1:1  there is no such file: penstock init makes a project\n",
  });
  const holder = await penstock(["check", "--config", "."], { cwd });
  assert.equal(holder.code, 1);
  assert.match(holder.stderr, /^\/\S+:1:1 {2}this is a folder: name the manifest in it\n$/);
});

test("penstock explain: a path that leads nowhere exits 1 with a suggestion; secrets print as ***", async (t) => {
  const cwd = await folder(t, { "service.yaml": `${QUIET}version: "\${SECRET}"\n` });
  const lost = await penstock(["explain", "agents.a.modle"], { cwd, env: { SECRET: "hush" } });
  assert.deepEqual(lost, { code: 1, stdout: "", stderr: 'there is no "modle" in agents.a, did you mean "model"?\n' });
  const secret = await penstock(["explain", "version"], { cwd, env: { SECRET: "hush" } });
  assert.equal(secret.stdout, 'version: "***"  # environment variable SECRET (service.yaml:4:1)\n');
});

test("penstock serve: --config, --plugins, --port and --host count, one line says where and what; SIGTERM exits 0", async (t) => {
  const tool = (name: string) => `export default { kind: "tool", name: "${name}", execute: () => 1 };`;
  const cwd = await folder(t, {
    "other.yaml": `${QUIET}server: { host: 127.0.0.1, port: 1, transport: node }\nplugins: [mine]\ntools: { x: { use: x }, y: { use: y }, z: { use: z } }\n`,
    "mine/tools/x.ts": tool("x"),
    "more/tools/y.mjs": tool("y"),
    "most/tools/z.js": tool("z"),
  });
  const args = ["--config", "other.yaml", "--plugins", "more", "--plugins", "most", "--host", "localhost"];
  const [port, service] = await onPort(
    async (port) => [port, await start(t, [...args, "--port", String(port)], { cwd })] as const,
  );
  const [line = "", ...others] = service.stdout().trimEnd().split("\n");
  assert.deepEqual(others, []);
  assert.match(
    JSON.parse(line).msg,
    /^Quiet listens on http:\/\/localhost:(\d+): 1 agent, 3 tools, 0 workflows; store memory:, auth none, transport node; console http:\/\/localhost:\1\/; open to .*$/,
  );
  assert.equal(service.url, `http://localhost:${port}`);
  assert.equal(service.stderr(), "");
  assert.equal((await fetch(`http://127.0.0.1:${port}/readyz`)).status, 200);
  assert.equal(await service.interrupt("SIGTERM"), 0);
  assert.doesNotMatch(service.stdout() + service.stderr(), /\n\s+at /, "without a stack trace");
});

const OPENNESS: [server: string, rest: string, open: string][] = [
  ["{}", "", "every program on this machine, and to the pages of every site in its browsers (auth.mode: none)"],
  ["{ cors: false }", "", "every program on this machine (auth.mode: none)"],
  [
    "{ cors: { origin: [https://a.example, https://b.example] } }",
    "",
    "every program on this machine, and to pages of https://a.example, https://b.example (auth.mode: none)",
  ],
  ["{ host: 0.0.0.0, transport: node, cors: false }", "", "everybody who reaches 0.0.0.0 (auth.mode: none)"],
  [
    "{}",
    "auth: { mode: authNext, provider: { use: static, tokens: { token-of-ada-0123456789: { id: ada } } } }\n",
    "callers with a token or the console's key, and public routes to everybody",
  ],
];

for (const [server, rest, open] of OPENNESS) {
  test(`penstock serve: with server ${server} ${rest.slice(0, 22)} the start line says that it is open to ${open}`, async (t) => {
    const cwd = await folder(t, { "service.yaml": `${QUIET}server: ${server}\n${rest}` });
    const service = await start(t, ["--port", "0", "--plugins", EXAMPLES], { cwd });
    // Other lines may come first, where the addon does not load.
    const [, said] = /; open to (.*)/.exec(JSON.parse(service.stdout().trimEnd().split("\n").at(-1)!).msg) ?? [];
    assert.equal(said, open);
    assert.equal(await service.interrupt("SIGTERM"), 0);
  });
}

test("penstock serve: SIGINT twice at once, as npm passes it on, is one; a stream that is open ends with an event", async (t) => {
  const cwd = await folder(t, { "service.yaml": `${QUIET}server: { limits: { drain: 200ms } }\n` });
  const service = await start(t, ["--port", "0"], { cwd });
  const reply = await fetch(`${service.url}/agents/a/stream`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ input: "word ".repeat(400) }),
  });
  signalGroup(service.child, "SIGINT");
  assert.equal(await service.interrupt("SIGINT"), 0);
  const text = await reply.text();
  assert.match(text, /text-delta/);
  assert.match(text, /"type":"error"/);
});

test("penstock serve: a port that is taken is one line on standard error and exit 1, over both transports", async (t) => {
  const holder = createServer().listen(0, "127.0.0.1");
  await once(holder, "listening");
  t.after(() => holder.close());
  const { port } = holder.address() as { port: number };
  for (const transport of ["auto", "node"]) {
    const cwd = await folder(t, { "service.yaml": `${QUIET}server: { transport: ${transport} }\n` });
    const { code, stdout, stderr } = await penstock(["--port", String(port)], { cwd });
    assert.equal(code, 1);
    assert.doesNotMatch(stdout, /listens on/);
    assert.equal(
      stderr,
      `penstock: cannot listen on 127.0.0.1:${port}: the port is in use by another process: -p or server.port names another\n`,
    );
  }
});

test("penstock serve in a pipe writes JSON lines alone: the start line at any logs.level, and the warnings of the manifest and of --host", async (t) => {
  const manifest = `${QUIET}server: { transport: node }\nlogs: { level: error }\ntools: { hello: { use: hello } }\n`;
  const cwd = await folder(t, {
    "service.yaml": manifest,
    "plugins/tools/hello.js": 'export default { kind: "tool", parameters: { tpye: "object" }, execute: () => 1 };',
  });
  const service = await start(t, ["--host", "0.0.0.0", "--port", "0", "--plugins", "plugins"], { cwd });
  const lines = service.stdout().trimEnd().split("\n");
  const told = lines.map((line) => JSON.parse(line) as { level: string; msg: string });
  assert.deepEqual(
    told.map(({ level }) => level),
    ["warn", "warn", "info"],
    service.stdout(),
  );
  assert.match(told[0]!.msg, /hello\.js:\d+:\d+ .*tpye/);
  assert.match(told[1]!.msg, /^--host 0\.0\.0\.0: .*auth\.mode is none$/);
  assert.match(told[2]!.msg, /listens on/);
  assert.equal(service.stderr(), "");
});

test("penstock check: a variable that is missing and stands in a .env beside the manifest: the message names --env-file", async (t) => {
  const cwd = await folder(t, { "service.yaml": `${QUIET}version: "\${THERE} \${NOWHERE}"\n`, ".env": "THERE=1.0\n" });
  const { code, stderr } = await penstock(["check"], { cwd });
  assert.deepEqual(
    [code, stderr],
    [
      1,
      "service.yaml:4:1  version: the environment variable THERE is not set: .env has it, --env-file .env reads it\n" +
        "service.yaml:4:1  version: the environment variable NOWHERE is not set\n",
    ],
  );
});

test("penstock on a Node before 20.19 says so in one line and exits 1, and Node 12 can read the file that says it", async () => {
  const older = `data:text/javascript,Object.defineProperty(process, "versions", { value: { node: "20.18.3" } })`;
  const program = process.env.PENSTOCK_TEST_BUILD || join(ROOT, "core/penstock.js");
  const ended = await run(process.execPath, ["--import", older, program, "--version"]);
  assert.deepEqual(ended, {
    code: 1,
    stdout: "",
    stderr: "penstock needs Node 20.19 or newer; this is Node 20.18.3\n",
  });
  const source = await readFile(program, "utf8");
  await transform(source, { format: "esm", target: "node12.20", supported: { "dynamic-import": true } });
  assert.doesNotMatch(source, /\?\.\w|\?\?/);
});

test("penstock: problems are in colour on a terminal, unless NO_COLOR is set, and never in a pipe", async (t) => {
  const cwd = await folder(t, { "service.yaml": "nmae: x\n" });
  const line = 'service.yaml:1:1  nmae: unknown key, did you mean "name"?';
  const envs: Record<string, string>[] = [{}, { NO_COLOR: "1" }, { TERM: "xterm-256color" }];
  for (const env of envs) assert.equal((await penstock(["check"], { cwd, env })).stderr, `${line}\n`);
  const terminal = ["-qec", `"${process.execPath}" "${PENSTOCK}" check`, "/dev/null"];
  const missing = programMissing("script");
  if (missing) return t.skip(missing);
  const coloured = await run("script", terminal, { cwd });
  assert.equal(coloured.stdout, `\u001b[31m${line}\u001b[0m\r\n`);
  const plain = await run("script", terminal, { cwd, env: { NO_COLOR: "1" } });
  assert.equal(plain.stdout, `${line}\r\n`);
});

test("penstock dev: serves anew after each change of the manifest, a plugin or --env-file, says what is wrong with a manifest, and mends; SIGINT exits 0", async (t) => {
  const cwd = await folder(t, {
    "service.yaml": `${QUIET}tools: { mine: { use: mine } }\n`,
    "plugins/tools/mine.ts": 'export default { kind: "tool", execute: () => "before" };',
    ".env": "",
  });
  const options = ["--plugins", "plugins", "--env-file", ".env"];
  const service = await onPort((port) => start(t, ["dev", ...options, "--port", String(port)], { cwd }));
  const said = () => service.stdout().length;
  /** Editors save by renaming: twice, since a watcher of the file itself would miss the second. */
  const save = async (name: string, text: string) => {
    await writeFile(join(cwd, `.${name}.draft`), text);
    await rename(join(cwd, `.${name}.draft`), join(cwd, name));
  };
  const names = ["Second", "Third"];
  for (const name of names) {
    const from = said();
    await save("service.yaml", `${QUIET.replace("Quiet", name)}tools: { mine: { use: mine } }\n`);
    await service.says(new RegExp(`${name} listens on`), from);
  }
  await save("service.yaml", "nmae: x\n");
  await service.says(/service\.yaml:1:1 {2}nmae: unknown key, did you mean \\"name\\"\?/);
  let from = said();
  await save("service.yaml", `${QUIET.replace("Quiet", "Mended")}tools: { mine: { use: mine } }\n`);
  await service.says(/Mended listens on/, from);
  from = said();
  await writeFile(join(cwd, "plugins/tools/mine.ts"), 'export default { kind: "tool", execute: () => "after" };');
  await service.says(/listens on/, from);
  const result = async () => {
    const headers = { "content-type": "application/json" };
    const reply = await fetch(`${service.url}/tools/mine/execute`, { method: "POST", headers, body: '{"input":{}}' });
    return ((await reply.json()) as { data: { result: string } }).data.result;
  };
  assert.equal(await result(), "after");
  const plugin = 'export default { kind: "tool", execute: () => process.env.OF_DEV };';
  for (const [name, text] of [
    ["plugins/tools/mine.ts", plugin],
    [".env", "OF_DEV=first"],
    [".env", "OF_DEV=second"],
  ] as const) {
    from = said();
    await writeFile(join(cwd, name), text);
    await service.says(/listens on/, from);
    if (name === ".env") assert.equal(await result(), text.slice("OF_DEV=".length));
  }
  assert.equal(await service.interrupt("SIGINT"), 0);
  await assert.rejects(fetch(service.url));
});

test("the bin of the package is executable, so that npx leaves the checkout as it is", async () => {
  const { bin } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"));
  assert.equal(bin.penstock, "core/penstock.js");
  assert.equal((await stat(join(ROOT, bin.penstock))).mode & 0o111, 0o111);
});
