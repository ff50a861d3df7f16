/** The package that `npm pack` makes, as somebody uses it who has installed it: without the checkout, and without its node_modules. */
import assert from "node:assert/strict";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { after, before, type TestContext, test } from "node:test";
import { ROOT, run, serve } from "./support/command-line.ts";
import { calls, failure, says, startOpenAIUpstream } from "./support/openai-upstream.ts";

const CHECKOUT = ["core", "docs", "generated", "schemas", "package.json", "package-lock.json", "README.md", "LICENSE"];
/** What npm installs with it, and what `init` writes into the package.json of a project. */
const INSTALLED = [
  "sqlite3",
  "node-gyp-build",
  "tsx",
  "esbuild",
  "@esbuild",
  "typescript",
  "@types/node",
  "undici-types",
];

const TEMPLATES = ["chat", "workflow", "rag"];

/** Packing and type checks take seconds of a whole processor. */
const HANG_MS = 200_000;

let folder: string;
let checkout: string;
let tarball: string;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "penstock-package-"));
  checkout = join(folder, "checkout");
  for (const part of CHECKOUT) cpSync(join(ROOT, part), join(checkout, part), { recursive: true });
  symlinkSync(join(ROOT, "node_modules"), join(checkout, "node_modules"));
  const packed = await run("npm", ["pack", "--silent", "--pack-destination", folder], { cwd: checkout, hang: HANG_MS });
  assert.equal(packed.code, 0, packed.stderr);
  const [name] = readdirSync(folder).filter((each) => each.endsWith(".tgz"));
  tarball = join(folder, name!);
  const read = (root: string) => readFileSync(join(root, "package.json"), "utf8");
  assert.equal(read(checkout), read(ROOT), "package.json of the checkout is as it was");
  assert.deepEqual(
    readdirSync(checkout).filter((each) => each.startsWith(".")),
    [],
  );
});

after(() => rmSync(folder, { recursive: true, force: true }));

/** An empty folder in which the package is installed. */
async function install(name: string): Promise<string> {
  const app = join(folder, name);
  const own = join(app, "node_modules/penstock-gateway");
  mkdirSync(own, { recursive: true });
  const { code, stderr } = await run("tar", ["-xzf", tarball, "-C", own, "--strip-components", "1"]);
  assert.equal(code, 0, stderr);
  for (const each of INSTALLED) {
    const link = join(app, "node_modules", each);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(ROOT, "node_modules", each), link);
  }
  return app;
}

const PROGRAM = "node_modules/penstock-gateway/dist/penstock.js";
const node = (cwd: string, ...args: string[]) => run(process.execPath, args, { cwd, hang: HANG_MS });
const penstock = (cwd: string, ...args: string[]) => node(cwd, PROGRAM, ...args);
const typeCheck = (cwd: string, ...args: string[]) => node(cwd, "node_modules/typescript/bin/tsc", ...args);

test("npm pack: a package of the bundle, its types, schema and licences, that installs two packages in fixed versions", async () => {
  const app = await install("looked-at");
  const own = join(app, "node_modules/penstock-gateway");
  const files = readdirSync(own, { recursive: true, encoding: "utf8" });
  const sources = files.filter((file) => /(?<!\.d)\.ts$/.test(file) || /(^|\/)(test|bench|plugins)\//.test(file));
  assert.deepEqual(
    sources.filter((file) => !file.includes("dist/core/init/templates/") && !/^dist\/docs\/.*\.md$/.test(file)),
    [],
  );
  for (const file of [
    "README.md",
    "LICENSE",
    "dist/docs/tutorial.md",
    "dist/docs/reference/manifest.md",
    "dist/THIRD_PARTY_LICENSES.txt",
    "dist/service.schema.json",
  ])
    assert.ok(files.includes(file), file);
  const manifest = JSON.parse(readFileSync(join(own, "package.json"), "utf8"));
  const checkout = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
  assert.deepEqual(manifest.dependencies, { sqlite3: checkout.dependencies.sqlite3, tsx: checkout.dependencies.tsx });
  assert.deepEqual([manifest.private, manifest.scripts, manifest.devDependencies], [undefined, undefined, undefined]);
  for (const entry of [...Object.values(manifest.bin), ...Object.values(manifest.exports["./plugin"])] as string[])
    assert.ok(existsSync(join(own, entry)), entry);
  const bill = JSON.parse(readFileSync(join(own, "dist/sbom.cdx.json"), "utf8"));
  const lock = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8"));
  const yaml = bill.components.find(({ name }: { name: string }) => name === "yaml");
  const [{ content }] = yaml.hashes;
  assert.equal(
    `sha512-${Buffer.from(content, "hex").toString("base64")}`,
    lock.packages["node_modules/yaml"].integrity,
  );
  const licences = readFileSync(join(own, "dist/THIRD_PARTY_LICENSES.txt"), "utf8");
  for (const { name, version } of bill.components) assert.ok(licences.includes(`${name} ${version}`), name);
});

test("penstock init of a package that npm has installed from a tarball: the project takes it along, and npm publish would take it", async () => {
  const app = await install("taken");
  const packages = { "node_modules/penstock-gateway": { resolved: `file:../${basename(tarball)}` } };
  writeFileSync(join(app, "node_modules/.package-lock.json"), JSON.stringify({ packages }));
  const made = await penstock(app, "init", "shop");
  assert.equal(made.code, 0, made.stderr);
  const { dependencies } = JSON.parse(readFileSync(join(app, "shop/package.json"), "utf8"));
  assert.equal(dependencies["penstock-gateway"], `file:${basename(tarball)}`);
  assert.deepEqual(readFileSync(join(app, "shop", basename(tarball))), readFileSync(tarball));
  const published = await run(
    "npm",
    ["publish", "--dry-run", "--silent", tarball, "--registry", "http://127.0.0.1:9", "--fetch-retries", "0"],
    {
      cwd: app,
      hang: HANG_MS,
    },
  );
  assert.deepEqual([published.code, published.stderr], [0, ""]);
});

const LATE = (days: string) => `import { defineTool } from "penstock-gateway/plugin";
export default defineTool({
  parameters: { type: "object", properties: { days: { type: "integer" } }, required: ["days"] },
  execute: ({ days }, { logger }) => { logger.info("late"); return { late: ${days} }; },
});
`;

test("penstock init in an empty folder: check, serve, a call of the agent, an own tool, evals with a real model from cassettes, and a build that runs elsewhere, offline and over node:http", async (t) => {
  const app = await install("first");
  const made = await penstock(app, "init", ".");
  assert.equal(made.code, 0, made.stderr);
  for (const file of [
    "service.yaml",
    "tsconfig.json",
    ".env.example",
    ".gitignore",
    "Dockerfile",
    "plugins/tools/lookup-order.ts",
    "test/evals.yaml",
  ])
    assert.match(made.stdout, new RegExp(`^ {2}${file}$`, "m"));
  assert.deepEqual(await penstock(app, "check"), { code: 0, stdout: "service.yaml is valid\n", stderr: "" });
  const [line = ""] = readFileSync(join(app, "service.yaml"), "utf8").split("\n", 1);
  assert.ok(existsSync(join(app, /\$schema=(\S+)$/.exec(line)![1]!)));

  // A tool of one's own.
  writeFileSync(join(app, "plugins/tools/late.ts"), LATE("days > 3"));
  const manifest = readFileSync(join(app, "service.yaml"), "utf8");
  writeFileSync(join(app, "service.yaml"), manifest.replace("\ntools:\n", "\ntools:\n  late: { use: late }\n"));

  const evals = (...args: string[]) => penstock(app, "eval", "test/evals.yaml", ...args);
  const offline = await evals();
  assert.equal(offline.code, 0, offline.stdout + offline.stderr);
  const [schemaLine = ""] = readFileSync(join(app, "test/evals.yaml"), "utf8").split("\n", 1);
  assert.ok(existsSync(join(app, "test", /\$schema=(\S+)$/.exec(schemaLine)![1]!)));
  await evalsWithModel(t, app, evals);

  const built = await penstock(app, "build", "built");
  assert.equal(built.code, 0, built.stderr);
  const refused = await penstock(app, "build", "plugins");
  assert.deepEqual([refused.code, refused.stderr], [1, "penstock: plugins is not empty: name a new folder\n"]);
  // Elsewhere: beside no package that it could find.
  const elsewhere = mkdtempSync(join(tmpdir(), "penstock-elsewhere-"));
  t.after(() => rmSync(elsewhere, { recursive: true, force: true }));
  cpSync(join(app, "built"), elsewhere, { recursive: true });
  assert.deepEqual(
    readdirSync(elsewhere).filter((name) => /^(\.|node_modules|built)/.test(name)),
    [],
  );
  const copy = await serve(t, [process.execPath, "dist/penstock.js", "serve", "--port", "0"], { cwd: elsewhere });
  const body = JSON.stringify({ input: { days: 2 } });
  const headers = { "content-type": "application/json" };
  const late = await fetch(`${copy.url}/tools/late/execute`, { method: "POST", headers, body });
  assert.deepEqual(((await late.json()) as { data: { result: unknown } }).data.result, { late: false });
  assert.equal(await copy.interrupt("SIGTERM"), 0);

  const service = await serve(t, [process.execPath, PROGRAM, "serve", "--port", "0"], { cwd: app });
  assert.match(service.stdout(), /store sqlite:data\/penstock\.db, .* transport node;/);
  const [first = ""] = service.stdout().split("\n", 1);
  const { level, msg } = JSON.parse(first);
  assert.deepEqual([level, msg], ["info", "serving over node:http: the optional uWebSockets.js is not installed"]);
  const post = async (path: string, input: unknown) => {
    const response = await fetch(service.url + path, { method: "POST", headers, body: JSON.stringify({ input }) });
    return ((await response.json()) as { data: Record<string, unknown> }).data;
  };
  assert.equal((await post("/agents/assistant/text", "Where is A-1001?")).text, "Order A-1001 is packed.");
  assert.deepEqual((await post("/tools/late/execute", { days: 5 })).result, { late: true });
  assert.equal((await fetch(`${service.url}/ui`)).status, 200);
  assert.equal(await service.interrupt("SIGTERM"), 0);
});

/** The lines that begin with `# For a real model`, carried out; then what the model answered is enough, and the wrong key is seen. */
async function evalsWithModel(t: TestContext, app: string, evals: (...args: string[]) => ReturnType<typeof run>) {
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  const scripted = readFileSync(join(app, "service.yaml"), "utf8");
  const real = scripted
    .replace("# openai: {", "openai: {")
    .replace("https://api.openai.com/v1", upstream.baseURL)
    .replace("demo/echo # openai/gpt-5-mini", "openai/gpt-5-mini")
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the manifest's own syntax
    .replace("${OPENAI_API_KEY}", "${OPENAI_API_KEY:-any}");
  writeFileSync(join(app, "service.yaml"), real);
  upstream.fallback(({ lastUserText, toolOutputs }) => {
    const [orderId = ""] = /A-\d+/.exec(lastUserText) ?? [];
    if (toolOutputs.length === 0) return calls([{ name: "lookup_order", input: { orderId } }]);
    return says(toolOutputs[0]!.includes("shipped") ? `${orderId} is shipped.` : `There is no ${orderId}.`);
  });
  const recorded = await evals("--record", "test/cassettes");
  assert.equal(recorded.code, 0, recorded.stdout + recorded.stderr);
  assert.equal(readdirSync(join(app, "test/cassettes/openai")).length, 4);
  upstream.fallback(() => failure(401, { message: "Incorrect API key provided" }));
  const refused = await evals();
  assert.equal(refused.code, 1);
  assert.match(refused.stdout, /answer: expected an answer, got .*Incorrect API key provided/);
  await upstream.close();
  const replayed = await evals("--replay", "test/cassettes", "--junit", "report.xml");
  assert.equal(replayed.code, 0, replayed.stdout + replayed.stderr);
  assert.match(readFileSync(join(app, "report.xml"), "utf8"), /tests="2" failures="0"/);
  writeFileSync(join(app, "service.yaml"), scripted);
}

test("penstock init --template and --from openapi, and in a repository whose package.json has no type: each project has a test of its own, which passes, and tsc says nothing but what is wrong in a tool", async () => {
  const app = await install("templates");
  for (const template of TEMPLATES) {
    const made = await penstock(app, "init", template, "--template", template);
    assert.equal(made.code, 0, made.stderr);
    symlinkSync(join(app, "node_modules"), join(app, template, "node_modules"));
    const tested = await node(join(app, template), "--import", "tsx", "--test", "test/service.test.ts");
    assert.equal(tested.code, 0, tested.stdout);
    const evals = await penstock(join(app, template), "eval", "test/evals.yaml");
    assert.equal(evals.code, 0, evals.stdout + evals.stderr);
  }
  const api = {
    openapi: "3.1.0",
    servers: [{ url: "http://127.0.0.1:9" }],
    paths: { "/pets": { get: {}, trace: {} } },
  };
  writeFileSync(join(app, "pets.json"), JSON.stringify(api));
  const made = await penstock(app, "init", "pets", "--from", "openapi", "pets.json");
  assert.deepEqual([made.code, made.stderr], [0, "not mapped: TRACE /pets: the method TRACE is none of a tool\n"]);
  symlinkSync(join(app, "node_modules"), join(app, "pets", "node_modules"));
  const tested = await node(join(app, "pets"), "--import", "tsx", "--test", "test/service.test.ts");
  assert.equal(tested.code, 0, tested.stdout);
  const evals = await penstock(join(app, "pets"), "eval", "test/evals.yaml");
  assert.equal(evals.code, 0, evals.stdout + evals.stderr);

  const repository = join(app, "repository");
  mkdirSync(repository);
  writeFileSync(join(repository, "package.json"), JSON.stringify({ name: "repository", private: true }));
  symlinkSync(join(app, "node_modules"), join(repository, "node_modules"));
  const begun = await penstock(repository, "init");
  assert.equal(begun.code, 0, begun.stderr);
  assert.equal(JSON.parse(readFileSync(join(repository, "package.json"), "utf8")).type, undefined);
  const checked = await node(repository, "--import", "tsx", "--test", "test/service.test.ts");
  assert.equal(checked.code, 0, checked.stdout);

  // In a tool of one's own, one mistake that the types see.
  writeFileSync(join(app, "chat/plugins/tools/late.ts"), LATE("days > 3"));
  writeFileSync(join(app, "repository/plugins/tools/late.ts"), LATE("days.trim()"));
  // All in one program of the compiler, of the settings of each: a file is a module of its own package.json's kind there too.
  const projects = [...TEMPLATES, "pets", "repository"];
  const settings = (project: string) => JSON.parse(readFileSync(join(app, project, "tsconfig.json"), "utf8"));
  const { include }: { include: string[] } = settings("chat");
  for (const project of projects) assert.deepEqual(settings(project), settings("chat"));
  const all = {
    extends: "./chat/tsconfig.json",
    include: projects.flatMap((project) => include.map((part) => `${project}/${part}`)),
  };
  writeFileSync(join(app, "tsconfig.json"), JSON.stringify(all));
  // The declarations of the package are checked as well, and have no mistake.
  const { stdout: mistakes } = await typeCheck(app, "--skipLibCheck", "false");
  assert.match(
    mistakes,
    /^repository\/plugins\/tools\/late\.ts\(4,\d+\): error TS2339: Property 'trim' does not exist on type 'number'\.\n$/,
  );
});

test("npm run prepare in the clone of who installs from git leaves the package of the bundle, with its command where npm has read it", async () => {
  const read = () => JSON.parse(readFileSync(join(checkout, "package.json"), "utf8"));
  const { bin, version } = read();
  // npm's sign for such a clone.
  const env = { _PACOTE_NO_PREPARE_: "git" };
  const prepared = await run("npm", ["run", "--silent", "prepare"], { cwd: checkout, env, hang: HANG_MS });
  assert.equal(prepared.code, 0, prepared.stderr);
  const packed = read();
  assert.deepEqual([packed.bin, packed.scripts], [bin, undefined]);
  // npm packs these files, and commands.
  const app = join(folder, "cloned");
  for (const part of [...packed.files, bin.penstock])
    cpSync(join(checkout, part), join(app, part), { recursive: true });
  for (const entry of Object.values(packed.exports["./plugin"]) as string[])
    assert.ok(existsSync(join(app, entry)), entry);
  assert.deepEqual(await node(app, bin.penstock, "--version"), { code: 0, stdout: `${version}\n`, stderr: "" });
});
