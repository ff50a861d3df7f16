// Runs every test file, or those whose path contains one of the arguments: `npm test`, `npm test -- contract`.
// `--checks` goes with a run of every file: types and lint are checked beside the first tests, and end the run when they find something.
// `--watch` runs the named files again whenever they or what they import change.
// `--node VERSION` runs them on another Node.js, fetched from the npm registry and kept in node_modules/.cache.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, setPriority, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { judgeSkips } from "./skips.mjs";
import { translateSources } from "./sources.mjs";

const { values, positionals: wanted } = parseArgs({
  allowPositionals: true,
  options: { node: { type: "string" }, checks: { type: "boolean" }, watch: { type: "boolean" } },
});

/** The binary of the npm package `node`; its install script only puts the binary of this platform in place. */
function fetchNode(version) {
  const folder = resolve(`node_modules/.cache/node-${version}`);
  const binary = `${folder}/node_modules/node/bin/node`;
  if (!existsSync(binary)) {
    mkdirSync(folder, { recursive: true });
    writeFileSync(`${folder}/package.json`, JSON.stringify({ private: true, allowScripts: { node: true } }));
    execFileSync("npm", ["install", "--no-save", `node@${version}`], { cwd: folder, stdio: "inherit" });
  }
  return binary;
}

const files = readdirSync("test", { recursive: true })
  .map((name) => `test/${name}`)
  .filter((name) => name.endsWith(".test.ts"))
  .filter((name) => wanted.length === 0 || wanted.some((part) => name.includes(part)))
  .sort();
if (files.length === 0) {
  console.error(`no test file matches ${wanted.join(" ")}`);
  process.exit(1);
}

/**
 * Folders whose files may share a process, and how many do. Starting one and loading the source costs more than most of these files
 * take; what ends, blocks or measures its process, or replaces its timers, has one of its own.
 */
const SHARING = {
  "test/unit/": 24,
  "test/contract/": 15,
  "test/manifest/": 8,
  "test/storage/": 4,
  "test/plugins/": 8,
  "test/clients/": 4,
  "test/durability/": 4,
  "test/security/": 3,
  "test/table/": 2,
  "test/documents-": 4,
};
/**
 * Files that take long, most of them because they wait. They begin first, so that what needs the processor runs meanwhile, and not
 * they alone at the end.
 */
const LONG = [
  "test/transport/node",
  "test/transport/uws",
  "test/cli.",
  "test/cli-options",
  "test/contract/token-end",
  "test/crash/",
  "test/chaos/",
  "test/soak/",
  "test/durability/log-output",
  "test/security/stop",
  "test/documents.test",
  "test/clock",
  "test/package.",
  "test/generate",
  "test/security/patterns",
  "test/storage/large-reads",
  "test/exact/",
  "test/size/",
  "test/fuzz/wire",
];
/** Not below node_modules, where newer versions of Node look for no tests. */
const bundles = mkdtempSync(join(tmpdir(), "penstock-tests-"));
/** What is made for this run, and removed after it. */
const temporary = [bundles];

/**
 * A module that imports test files. Node runs files in the order of their paths, so that the name decides when its turn is. No test runs
 * before all files are there: as soon as all tests that it knows have ended, Node runs the `after` hooks of all files, and would close
 * what a file has just opened.
 */
function bundle(name, mine) {
  const path = `${bundles}/${name}.test.mjs`;
  const imports = mine.map((file) => `await import(${JSON.stringify(pathToFileURL(resolve(file)).href)});`);
  const lines = [
    'import { before } from "node:test";',
    "let loaded;",
    "const loading = new Promise((resolve) => { loaded = resolve; });",
    "const alive = setInterval(() => {}, 60_000);",
    "before(() => loading);",
    // Also when one cannot be imported: the run goes on at once, and says so.
    "try {",
    ...imports,
    "} finally {",
    "clearInterval(alive);",
    "loaded();",
    "}",
  ];
  writeFileSync(path, `${lines.join("\n")}\n`);
  return path;
}

/** The paths to run: files by themselves, and modules that import some of those that may share. */
function processes() {
  const first = LONG.flatMap((start) => files.filter((file) => file.startsWith(start)));
  const rest = files.filter((file) => !first.includes(file));
  // Replaced timers, listeners and descriptors would be those of other files as well, what is measured would be theirs too, and
  // what is seen while modules are imported must not have been imported before.
  const isAlone = (file) =>
    /mock\.timers|\/proc\/self\/fd|serveMeasured|process\.on\("|patternsBuiltBy|runInNewContext\("gc"\)/.test(
      readFileSync(file, "utf8"),
    );
  const folderOf = (file) =>
    isAlone(file) ? undefined : Object.keys(SHARING).find((folder) => file.startsWith(folder));
  const alone = rest.filter((file) => folderOf(file) === undefined);
  const early = [...first, ...alone].map((file, index) => bundle(`0-${String(index).padStart(2, "0")}`, [file]));
  const shared = Object.entries(SHARING).flatMap(([folder, together]) => {
    const mine = rest.filter((file) => folderOf(file) === folder);
    const count = Math.ceil(mine.length / together);
    return Array.from({ length: count }, (_, index) =>
      // Dealt out like cards: neighbours are much alike, and so are then the bundles.
      bundle(
        `${folder.split("/")[1].replace(/-$/, "")}-${index}`,
        mine.filter((_file, position) => position % count === index),
      ),
    );
  });
  return [...early, ...shared];
}

const binary = values.node === undefined ? process.execPath : fetchNode(values.node);
console.log(
  `${files.length} test files on Node.js ${execFileSync(binary, ["--version"], { encoding: "utf8" }).trim()}`,
);
const watch = values.watch ? ["--watch"] : [];
/** Milliseconds for one test, and for one process with all of its files: only a hang takes so long, or a search at length (`npm run test:fuzz`). */
const timeout = process.env.PENSTOCK_FUZZ === "long" ? 3_600_000 : 1_200_000;
const options = [
  "--test",
  // For each test process: most of what tests make is garbage soon, and collecting it less often saves a twentieth of the run.
  "--max-semi-space-size=64",
  // More than there are processors: many tests wait.
  `--test-concurrency=${availableParallelism() + 3}`,
  `--test-timeout=${timeout}`,
  `--test-reporter=${new URL("lines-reporter.mjs", import.meta.url).href}`,
  "--test-reporter-destination=stdout",
  `--test-reporter=${new URL("skips-reporter.mjs", import.meta.url).href}`,
  `--test-reporter-destination=${join(bundles, "results")}`,
];
const path = `${resolve(binary, "..")}:${process.env.PATH}`;
const env = { ...process.env, NODE_ENV: "test", PATH: path };

/** The processes of the run: tests and checks. */
const begun = [];
let failure = "";
function fail(why) {
  failure ||= why;
  for (const child of begun) if (child.exitCode === null && child.signalCode === null) end(child.pid);
}

/**
 * Ends a process and all that it has begun: services have groups of their own, and nothing stops them once their tests are gone. One that
 * stands still begins no more of them.
 */
function end(pid) {
  try {
    process.kill(pid, "SIGSTOP");
    const threads = readdirSync(`/proc/${pid}/task`).map((id) => `/proc/${pid}/task/${id}/children`);
    for (const id of threads.flatMap((path) => readFileSync(path, "utf8").match(/\d+/g) ?? [])) end(Number(id));
  } catch {
    // It has ended, or this system has no list of them.
  }
  try {
    for (const signal of ["SIGTERM", "SIGCONT"]) process.kill(pid, signal);
  } catch {
    // It has ended.
  }
}

/** Whether generated/ is up to date is a test. */
const CHECKS = ["typecheck", "lint"];

/** Beside the tests, which come first: the type checker needs one processor for half a minute, and many tests wait. */
async function check(name) {
  const checking = spawn("npm", ["run", "--silent", name], { stdio: "inherit" });
  begun.push(checking);
  setPriority(checking.pid, 10);
  const [status] = await once(checking, "exit");
  if (status !== 0) fail(`npm run ${name}`);
}

/** One server for all files that can share it; a few files by name start their own. When it ends by itself, so does the run. */
async function sharePostgres() {
  const args = ["--import", "tsx", "test/support/postgres-server.ts"];
  env.PENSTOCK_TEST_POSTGRES_MADE = join(bundles, "postgres");
  const server = spawn(binary, args, { stdio: ["pipe", "pipe", "inherit"], env });
  let isWanted = true;
  const url = await new Promise((resolve) => {
    let said = "";
    server.stdout.setEncoding("utf8").on("data", (text) => {
      said += text;
      if (said.includes("\n")) resolve(said);
    });
    server.once("exit", () => {
      if (!isWanted) return;
      fail("the PostgreSQL server of the run ended by itself, or did not start");
      resolve("");
    });
  });
  env.PENSTOCK_TEST_POSTGRES_SHARED = url.trim();
  return () => {
    isWanted = false;
    server.stdin.end();
  };
}

/**
 * Penstock as `npm run build` makes it: hundreds of processes start from it, each in a fifth of the time that the sources take. And the
 * JavaScript of the sources, for the tests and what they start from sources.
 */
async function buildOnce() {
  // Below the checkout, whose packages it finds.
  mkdirSync("node_modules/.cache", { recursive: true });
  const out = mkdtempSync(resolve("node_modules/.cache/test-build-"));
  temporary.push(out);
  const args = ["--import", "tsx", "core/codegen/build.ts", "--out", out];
  const [status] = await once(spawn(binary, args, { stdio: ["ignore", "ignore", "inherit"], env }), "exit");
  if (status !== 0) return fail("the build of the run");
  const program = join(out, "penstock.js");
  // After the line for the shell.
  const lessCompiling = `import ${JSON.stringify(new URL("less-compiling.mjs", import.meta.url).href)};`;
  writeFileSync(program, readFileSync(program, "utf8").replace("\n", `\n${lessCompiling}\n`));
  env.PENSTOCK_TEST_BUILD = program;
  env.PENSTOCK_TEST_LOADER = await translateSources(join(out, "sources"));
}

// What changes during a watch is in no build.
const isWhole = wanted.length === 0 && !values.watch;
// What was made for the run is removed after an interrupted one too.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => fail(signal));
const checked = values.checks && isWhole ? CHECKS.map(check) : [];
const [endPostgres = () => undefined] = isWhole ? await Promise.all([sharePostgres(), buildOnce()]) : [];
let status = 1;
if (failure === "") {
  const paths = values.watch ? files : processes();
  const loader = ["--import", env.PENSTOCK_TEST_LOADER ?? "tsx"];
  // In a group of its own, so that a signal of the terminal reaches the tests only after what they have begun.
  const child = spawn(binary, [...loader, ...options, ...watch, ...paths], { stdio: "inherit", env, detached: true });
  begun.push(child);
  status = (await once(child, "exit"))[0] ?? 1;
}
await Promise.all(checked);
const results = existsSync(join(bundles, "results")) ? readFileSync(join(bundles, "results"), "utf8") : "";
for (const folder of temporary) rmSync(folder, { recursive: true, force: true });
endPostgres();
// One JSON text a line; the last one is cut in a run that was interrupted.
const lines = results
  .split("\n")
  .slice(0, -1)
  .map((line) => JSON.parse(line));
const { summary, problems } = judgeSkips(lines, { node: binary, isWhole: isWhole && status === 0 });
for (const line of summary) console.log(line);
for (const line of [...problems, ...(failure === "" ? [] : [failure])]) console.error(`FAILED: ${line}`);
process.exit(status === 0 && (problems.length > 0 || failure !== "") ? 1 : status);
