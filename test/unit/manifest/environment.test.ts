// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the manifest writes references to the environment so.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { maskText, substitute } from "../../../core/manifest/environment.ts";

const folder = mkdtempSync(join(tmpdir(), "penstock-environment-"));
after(() => rmSync(folder, { recursive: true }));

const resultOf = (value: unknown, env: Record<string, string> = {}) => {
  const { value: result, problems } = substitute(value, env, folder);
  assert.deepEqual(problems, []);
  return result;
};
const problemsOf = (value: unknown, env: Record<string, string> = {}) =>
  substitute(value, env, folder).problems.map(({ path, message }) => `${path.join(".")}: ${message}`);

describe("substitute", () => {
  it("replaces ${NAME} anywhere inside strings, several times, and nothing in keys", () => {
    assert.deepEqual(resultOf({ "${A}": ["x${A}y${B}${A}"], n: 1, z: null }, { A: "1", B: "2" }), {
      "${A}": ["x1y21"],
      n: 1,
      z: null,
    });
  });

  it("substitution of ${NAME} in a manifest takes the default for an unset and for an empty variable", () => {
    assert.equal(resultOf("${A:-b}", {}), "b");
    assert.equal(resultOf("${A:-b}", { A: "" }), "b");
    assert.equal(resultOf("${A:-}", {}), "");
    assert.equal(resultOf("${A:-http://x:1/y?z=1}", {}), "http://x:1/y?z=1");
    assert.equal(resultOf("${A:-b}", { A: "c" }), "c");
  });

  it("substitution of ${NAME} in a manifest keeps an empty variable without a default", () =>
    assert.equal(resultOf("<${A}>", { A: "" }), "<>"));

  it("substitution of ${NAME} in a manifest reads ${file:PATH} relative to the manifest, without the last line break", () => {
    writeFileSync(join(folder, "secret"), "line one\nline two\n");
    assert.equal(resultOf("${file:secret}"), "line one\nline two");
    assert.equal(resultOf(`\${file:${join(folder, "secret")}}`), "line one\nline two");
  });

  it("substitution of ${NAME} in a manifest never looks at a value that came in", () => {
    assert.equal(resultOf("${A}", { A: "${B}", B: "no" }), "${B}");
    writeFileSync(join(folder, "nested"), "${B}");
    assert.equal(resultOf("${file:nested}", { B: "no" }), "${B}");
  });

  it("substitution of ${NAME} in a manifest leaves $${NAME} as ${NAME}, and a lone dollar alone", () => {
    assert.equal(resultOf("$${A} costs $5 or {A}", { A: "1" }), "${A} costs $5 or {A}");
  });

  it("substitution of ${NAME} in a manifest names an unset variable, a file that cannot be read and what is no reference, each at its path", () => {
    assert.deepEqual(problemsOf({ a: ["${NOPE}"], b: "${file:nope}", c: "${1}", d: "${OPEN" }), [
      "a.0: the environment variable NOPE is not set",
      "b: ${file:nope}: the file cannot be read (ENOENT)",
      "c: ${1}: write ${NAME}, ${NAME:-default} or ${file:PATH}; $${ stands for a plain ${",
      "d: ${OPEN: write ${NAME}, ${NAME:-default} or ${file:PATH}; $${ stands for a plain ${",
    ]);
  });

  it("remembers what came from outside, and masks that alone", () => {
    const { substitutions, filledIn } = substitute({ a: "x-${KEY}-${D:-d}", b: "${D:-d}" }, { KEY: "s3cret" }, folder);
    const a = {
      path: ["a"],
      written: "x-${KEY}-${D:-d}",
      sources: ["KEY"],
      variables: ["KEY", "D"],
      masked: "x-***-d",
      whole: false,
    };
    assert.deepEqual(substitutions.get('["a"]'), a);
    const b = { path: ["b"], written: "${D:-d}", sources: [], variables: ["D"], masked: "d", whole: true };
    assert.deepEqual(substitutions.get('["b"]'), b);
    assert.deepEqual(filledIn, ["s3cret"]);
  });

  it("takes for secret what is long, or named so by its variable or its key, here or in the environment", () => {
    const manifest = {
      db: "${DB}",
      url: "${URL}",
      pin: "${MY_TOKEN}",
      apiKey: "${CODE}",
      headers: { authorization: "Bearer written-here", "x-api-key": "short" },
      parameters: { properties: { token: { type: "string", description: "a token of some length" } } },
      secret: "{{ context.secret }}",
    };
    const env = { DB: "demo", URL: "http://host", MY_TOKEN: "abcd", CODE: "4711", OFF_TOKEN: "false" };
    assert.deepEqual(substitute(manifest, env, folder).secrets, ["http://host", "abcd", "4711", "written-here"]);
  });
});

describe("maskText", () => {
  it("masks secrets in messages, the longest first, short ones only in quotes", () => {
    assert.equal(
      maskText('unknown "abcdef" and abcdefgh, a "no" is no', ["abcdef", "abcdefgh", "no"]),
      'unknown "***" and ***, a "***" is no',
    );
  });
});
