// Runs every test file, or those whose path contains one of the arguments: `npm test`, `node test/run.mjs contract`.
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";

const wanted = process.argv.slice(2).filter((argument) => !argument.startsWith("--"));
const files = readdirSync("test", { recursive: true })
  .map((name) => `test/${name}`)
  .filter((name) => name.endsWith(".test.ts"))
  .filter((name) => wanted.length === 0 || wanted.some((part) => name.includes(part)))
  .sort();
if (files.length === 0) {
  console.error(`no test file matches ${wanted.join(" ")}`);
  process.exit(1);
}
const options = ["--import", "tsx", "--test", "--test-concurrency=2", "--test-timeout=120000", "--test-reporter=spec"];
const env = { ...process.env, NODE_ENV: "test" };
const child = spawn(process.execPath, [...options, ...files], { stdio: "inherit", env });
child.on("exit", (code, signal) => process.exit(signal === null ? code : 1));
