/** docs/evals.md: what it shows is run, and what it names is all there is. Beside it, what documents say of real models. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { PENSTOCK, ROOT, run } from "./support/command-line.ts";
import { block, DOCUMENTS, EVERYTHING, FLAGSHIP, folder, merge } from "./support/documents.ts";
import { failure, startOpenAIUpstream } from "./support/openai-upstream.ts";
import { errorOf } from "./support/served-upstream.ts";
import { startService } from "./support/service.ts";

const own = (command: string) => command.replaceAll("npx penstock-gateway", `"${process.execPath}" "${PENSTOCK}"`);

test("docs/evals.md: the cases that are shown pass on the shipped service.yaml, recorded and replayed too", async (t) => {
  const cases = block("yaml", "# evals.yaml");
  const cwd = await folder(t, { "service.yaml": FLAGSHIP, "evals.yaml": cases });
  const once = block("bash", "npx penstock-gateway eval evals.yaml\n");
  const kept = block("bash", "eval evals.yaml --record");
  for (const command of `${once}${kept}`.trimEnd().split("\n")) {
    const { code, stdout, stderr } = await run("sh", ["-c", own(command)], { cwd });
    assert.equal(code, 0, command + stdout + stderr);
    assert.match(stdout, /^2 cases: 2 passed, 0 failed$/m);
  }
});

test("docs/evals.md: the cases of the shipped service.yaml print the table that is shown", async () => {
  const [, command = "", table = ""] = /^\$ ([^\n]*)\n(.*)$/s.exec(block("console", "test/evals/support.yaml"))!;
  const { code, stdout, stderr } = await run("sh", ["-c", own(command)]);
  assert.deepEqual([code, stderr], [0, ""], stdout);
  const timeless = (text: string) => text.replace(/ +(\d+ ms|\d+\.\d s|TIME)$/gm, "");
  assert.equal(timeless(stdout), timeless(table));
});

test("docs/evals.md names every key of a file of evals and every option of the command", () => {
  const { $defs } = JSON.parse(readFileSync(join(ROOT, "schemas/evals/evals.json"), "utf8"));
  const chapter = DOCUMENTS.get("docs/evals.md")!;
  const keys = ["EvalFile", "EvalDefaults", "EvalCase", "EvalExpectations"].flatMap((name) =>
    Object.keys($defs[name].properties),
  );
  assert.ok(keys.length > 15);
  for (const key of keys.filter((each) => each !== "cases")) assert.ok(chapter.includes(`\`${key}\``), key);
  assert.ok(chapter.includes(`${$defs.EvalFile.properties.concurrency.default}, at most 64`));
  for (const option of ["--json", "--junit FILE", "--record", "--replay"]) assert.ok(chapter.includes(option), option);
});

test("README: with the provider snippet in service.yaml, a key that the provider refuses is an error, and no other model answers", async (t) => {
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  upstream.fallback(() => failure(401, { message: "Incorrect API key provided" }));
  const snippet = block("yaml", "openai:").replace("https://api.openai.com/v1", upstream.baseURL);
  const env = { OPENAI_API_KEY: "sk-wrong" };
  const service = await startService(t, merge(parse(FLAGSHIP), parse(snippet)), { env });
  const { status } = await errorOf(service.post("/agents/support/text", { input: "Where is order A-1002?" }));
  assert.equal(status, 500);
  assert.equal(upstream.requests.length, 1);
});

test("every document, the shipped service.yaml and the files of new projects: no real model falls back to the offline demo", () => {
  const templates = readdirSync(join(ROOT, "core/init/templates"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith("service.yaml.template"))
    .map((name) => readFileSync(join(ROOT, "core/init/templates", name), "utf8"));
  const lists = [EVERYTHING, FLAGSHIP, ...templates].flatMap((text) => [...text.matchAll(/model: (\[[^\]]*\])/g)]);
  assert.ok(lists.length > 0);
  for (const [, list = ""] of lists) {
    const providers = new Set((parse(list) as string[]).map((model) => model.split("/", 1)[0]));
    assert.ok(!providers.has("demo") || providers.size === 1, list);
  }
});
