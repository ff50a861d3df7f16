// Runs every test file, or those whose path contains one of the arguments: `npm test`, `node test/run.mjs contract`.
// `--node VERSION` runs them on another Node.js, fetched from the npm registry and kept in node_modules/.cache.
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { parseArgs } from "node:util";

const { values, positionals: wanted } = parseArgs({ allowPositionals: true, options: { node: { type: "string" } } });

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
const binary = values.node === undefined ? process.execPath : fetchNode(values.node);
console.log(
  `${files.length} test files on Node.js ${execFileSync(binary, ["--version"], { encoding: "utf8" }).trim()}`,
);
const options = ["--import", "tsx", "--test", "--test-concurrency=2", "--test-timeout=120000", "--test-reporter=spec"];
const path = `${resolve(binary, "..")}:${process.env.PATH}`;
const env = { ...process.env, NODE_ENV: "test", PATH: path };
const child = spawn(binary, [...options, ...files], { stdio: "inherit", env });
child.on("exit", (code, signal) => process.exit(signal === null ? code : 1));
