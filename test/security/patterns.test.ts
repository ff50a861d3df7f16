/** No regular expression of the source, and nothing that cleans text with them, takes more time than its text is long. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fullFormats } from "ajv-formats/dist/formats.js";
import { LONG, spread } from "../support/at-length.ts";
import { ends, superlinear } from "../support/growth.ts";
import { type Pattern, patternsBuiltBy, patternsOfSchemas, patternsOfSource } from "../support/patterns.ts";
import { type Attack, attacksOn, textOf } from "../support/regex-attacks.ts";

const FOLDERS = ["core", "plugins"];

/** Patterns that others write: they never meet the text of a request, or their author's service alone is slow. */
const OF_OTHERS: Record<string, string> = {
  "core/client-schema/pattern.ts: new RegExp(source, flags)": "compiled to see whether it is one, and never run",
  "core/client-schema/pattern.ts: new RegExp(`^(?:${this.#source})$`, this.#flags)":
    "asked about one character at a time",
  'core/lib/schema-shape.ts: new RegExp(value, "u")': "compiled to see whether it is one, and never run",
  'core/models/scripted/replies.ts: new RegExp(reply.when ?? "", "i")':
    "written in the manifest, for a model that stands in for a real one",
  "core/manifest/read.ts: new RegExp(`\\\\b${key}[\"']?\\\\s*[:(]`)": "a field of a plugin, looked for in its own file",
  'core/packing/service-files.ts: new RegExp(`^${path.includes("/") ? "" : "(.*/)?"}${pattern}(/|$)`)':
    "written in .penstockignore, for names of its author's files",
};

/** Built from the secrets of a service when it starts, so that they must be used to be seen. */
type LogTextModule = typeof import("../../core/observability/log-text.ts");
type ContentModule = typeof import("../../core/observability/content.ts");
const LOG_TEXT = "core/observability/log-text.ts";
const CONTENT = "core/observability/content.ts";
const SECRETS = ["s3cret-of-the-manifest", "a+b(c)*", "b"];

const { patterns: literals, built } = patternsOfSource(FOLDERS);
const sites = built.filter(({ where, text }) => !(`${where.replace(/:\d+$/, "")}: ${text}` in OF_OTHERS));
const modules = [...new Set([LOG_TEXT, CONTENT, ...sites.map(({ where }) => where.replace(/:\d+$/, ""))])];
const composed = await patternsBuiltBy(modules, (logText, content) => {
  new (logText as LogTextModule).LogText().hide(SECRETS);
  (content as ContentModule).createCleaner("redacted", SECRETS);
});

/** What is wrong with `work`, which is `what`; empty where nothing is. */
function faultsOf(what: string, attacks: readonly Attack[], work: (text: string) => unknown): string[] {
  let now: Attack | undefined;
  let growth: string | null = null;
  const ended = ends(() => {
    for (now of attacks) {
      const attack = now;
      growth = superlinear((length) => textOf(attack, length), work);
      if (growth !== null) return;
    }
  });
  if (ended && growth === null) return [];
  return [`${what}: ${growth ?? "does not end"} on ${JSON.stringify(now)}`];
}

/** Texts that one pattern is given, and what cleans text is given of those on its patterns: a pattern has hundreds. */
const MOST_ATTACKS = LONG ? Number.POSITIVE_INFINITY : 200;
const MOST_ON_FILES = LONG ? 100 : 40;

/** All that it finds, also where it is used to find one. */
function faultsOfPattern({ where, source, flags }: Pattern): string[] {
  const finds = new RegExp(source, flags.includes("y") ? flags : `${flags.replace("g", "")}g`);
  return faultsOf(`${where} /${source}/${flags}`, spread(attacksOn({ source, flags }), MOST_ATTACKS), (text) =>
    text.replace(finds, ""),
  );
}

test("the search for slow patterns finds those that are known to be", () => {
  for (const source of ["(a+)+$", "\\s+$", "(x|y*)*z", "\\beyJ[\\w-]{5,}\\.[\\w-]{5,}", "<[^>]*>.*?</b>!", "a*b?a*c"])
    assert.equal(faultsOfPattern({ where: "here", source, flags: "" }).length, 1, source);
  for (const source of ["^(a+)$", "(?<!\\s)\\s+$", "[a-z]{3,5}-\\d+", "^[A-Za-z0-9_.:-]{1,128}$"])
    assert.deepEqual(faultsOfPattern({ where: "here", source, flags: "" }), [], source);
});

test("every regular expression of the source takes time in proportion to its text", () => {
  assert.ok(literals.length > 150);
  assert.deepEqual(literals.flatMap(faultsOfPattern), []);
});

test("every regular expression that the source builds from texts is known here, and takes time in proportion to its text", () => {
  const seen = new Set(composed.map(({ where }) => where));
  assert.deepEqual(
    sites.filter(({ where }) => !seen.has(where)),
    [],
    "built, and neither seen nor listed",
  );
  assert.deepEqual(composed.flatMap(faultsOfPattern), []);
  assert.equal(built.length - sites.length, Object.keys(OF_OTHERS).length, "no longer built: take it off the list");
});

test("every pattern and format of the schemas takes time in proportion to its text", () => {
  const patterns = patternsOfSchemas("schemas");
  assert.ok(patterns.length > 15);
  assert.deepEqual(patterns.flatMap(faultsOfPattern), []);
  const attacks = ["1", "2026-11-20T09:30:00.", "http://", "a:", "%41", "[::", ":/", "?#", "-"].map(endless);
  for (const name of ["date-time", "uri"] as const) {
    const format = fullFormats[name] as RegExp | { validate(text: string): boolean } | ((text: string) => boolean);
    const fits =
      format instanceof RegExp ? (text: string) => format.test(text) : "validate" in format ? format.validate : format;
    assert.deepEqual(faultsOf(name, attacks, fits), []);
  }
});

const endless = (word: string): Attack => ({ head: "", word, tail: "\u0001" });

/** Some of the attacks on the patterns of some files. */
function attacksOnFiles(files: readonly string[]): Attack[] {
  const all = [...literals, ...composed].filter(({ where }) => files.some((file) => where.startsWith(file)));
  return spread(all.flatMap(attacksOn), MOST_ON_FILES);
}

test("a line of the log is cleaned in proportion to its length, whatever stands in it", async () => {
  const { LogText } = (await import("../../core/observability/log-text.ts")) as LogTextModule;
  const { createLogger } = await import("../../core/observability/logger.ts");
  const text = new LogText();
  text.hide(SECRETS);
  const logger = createLogger("debug", { destination: { write: () => {} }, text });
  const attacks = [endless("-eyJ"), endless('"token":'), ...attacksOnFiles([LOG_TEXT, "core/observability/redaction"])];
  for (const [how, log] of Object.entries({
    message: (said: string) => logger.info(said),
    error: (said: string) => logger.error({ err: new Error(said) }, said),
    binding: (said: string) => logger.info({ password: said, of: { it: [said] } }, "x"),
  }))
    assert.deepEqual(faultsOf(how, attacks, log), []);
});

test("content of spans is cleaned in proportion to what is kept of it, whatever stands in it", async () => {
  const { createCleaner } = (await import("../../core/observability/content.ts")) as ContentModule;
  const { redact } = await import("../../core/observability/redaction.ts");
  const cleaner = createCleaner("redacted", SECRETS);
  const attacks = [endless("-eyJ"), endless("4111 "), ...attacksOnFiles([CONTENT, "core/observability/redaction"])];
  assert.deepEqual(faultsOf("text", attacks, redact), []);
  assert.deepEqual(faultsOf("content", attacks, cleaner.content), []);
  assert.deepEqual(
    faultsOf("list", attacks, (text) => cleaner.content(text.match(/[\s\S]{1,8}/g))),
    [],
  );
  assert.deepEqual(faultsOf("message", attacks, cleaner.message), []);
});

test("templates, .env files and failures of imports are read in proportion to their length", async () => {
  const { splitTemplate } = await import("../../core/manifest/template-text.ts");
  const { withVariables } = await import("../../core/platform/environment-file.ts");
  const { describeImportFailure } = await import("../../core/registry/load.ts");
  const templates = [
    '{{ \\" }}',
    "{{ \\' }}",
    "{{ '''\\' }}",
    '{{ """\\" }}',
    "{{",
    "{{ 'a",
    "{{ { }",
    '"""',
    '\\"',
    "//",
  ];
  const lines = ['A="', "A='\n", "A=`\n", "A= #", "A=' #\n", " ", "#", "export ", "A=b\n"];
  assert.deepEqual(faultsOf("template", templates.map(endless), splitTemplate), []);
  for (const head of ["{{", '{{ """', "{{ '"])
    assert.deepEqual(
      faultsOf(
        `template after ${head}`,
        templates.map((word) => ({ head, word, tail: "" })),
        splitTemplate,
      ),
      [],
    );
  assert.deepEqual(
    faultsOf(".env", lines.map(endless), (text) => withVariables(text, { A: "1", B: "2" })),
    [],
  );
  const failures = ["\n", " ", " \n", ":1:1: ERROR: ", "'", "imported from "].map(endless);
  assert.deepEqual(
    faultsOf("import", failures, (text) => describeImportFailure(new Error(text), "/a.ts")),
    [],
  );
});
