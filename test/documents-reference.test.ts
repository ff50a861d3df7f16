/** docs/reference/: the pages that `npm run generate` writes are those of the sources, and nothing is left out. */
import assert from "node:assert/strict";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { ROUTES } from "../core/api/routes/index.ts";
import { boot } from "../core/app/boot.ts";
import { formatIssue } from "../core/manifest/manifest.ts";
import { createLogger } from "../core/observability/logger.ts";
import { pages } from "../docs/reference/generate.ts";
import { ROOT } from "./support/command-line.ts";
import { block, DOCUMENTS, FLAGSHIP, FOLLOWED, folder, merge } from "./support/documents.ts";
import { EXAMPLES } from "./support/plugin-folder.ts";

const SCHEMA = JSON.parse(readFileSync(join(ROOT, "generated/service.schema.json"), "utf8"));

test("docs/reference/: npm run generate would write exactly what is there", () => {
  for (const [name, text] of Object.entries(pages()))
    assert.ok(
      DOCUMENTS.get(`docs/reference/${name}`) === text,
      `docs/reference/${name} is stale: run npm run generate`,
    );
});

test("docs/reference/manifest.md: every key that has a description in the schema has a row with it", () => {
  const page = DOCUMENTS.get("docs/reference/manifest.md")!;
  const rows = new Set(page.split("\n"));
  const missing: string[] = [];
  let found = 0;
  for (const [name, definition] of Object.entries<{ properties?: Record<string, { description?: string }> }>(
    SCHEMA.$defs,
  ))
    for (const [key, { description }] of Object.entries(definition.properties ?? {})) {
      if (description === undefined) continue;
      const text = description.replace(/\s+/g, " ").replaceAll("|", "\\|");
      found += 1;
      if (![...rows].some((row) => row.startsWith(`| \`${key}\` `) && row.includes(text)))
        missing.push(`${name}.${key}`);
    }
  assert.ok(found > 200, String(found));
  assert.deepEqual(missing, []);
});

test("docs/reference/endpoints.md: every row of the routes table has a heading", () => {
  const page = DOCUMENTS.get("docs/reference/endpoints.md")!;
  const headings = new Set([...page.matchAll(/^### (.*)$/gm)].map(([, title]) => title));
  for (const { method, path } of ROUTES) assert.ok(headings.has(`${method} ${path}`), `${method} ${path}`);
});

/** What a snippet needs beside the shipped manifest, by what it holds: the chapter says so. */
const NEEDS: Record<string, object> = {
  "tokenExchange:": {
    auth: { mode: "authNext", provider: { use: "jwt", secret: "thirty-two characters or more of it" } },
  },
};
test("every chapter: a manifest, or a part of one written into service.yaml, is one that check accepts", async (t) => {
  const keys = Object.keys(SCHEMA.$defs.Manifest.properties);
  // The plugin of docs/plugins.md, and those of the checkout.
  const path = await folder(t, { "plugins/tools/gross.ts": block("ts", "// tools/gross.ts") });
  cpSync(EXAMPLES, join(path, "plugins"), { recursive: true });
  let found = 0;
  for (const [chapter, text] of DOCUMENTS)
    for (const [, snippet] of text.matchAll(/^```yaml\n(.*?)^```/gms)) {
      const part = parse(snippet!);
      // Of another program, or a file of evals, or a step by itself.
      if (!Object.keys(part).every((key) => keys.includes(key)) || FOLLOWED.includes(chapter)) continue;
      found += 1;
      const added = Object.entries(NEEDS).find(([holds]) => snippet!.includes(holds))?.[1] ?? {};
      const manifest = "name" in part ? part : merge(merge(parse(FLAGSHIP), part), added);
      const config = join(path, `${found}.yaml`);
      writeFileSync(config, JSON.stringify({ ...manifest, store: "memory:" }));
      const env = Object.fromEntries([...snippet!.matchAll(/\$\{(\w+)\}/g)].map(([, name]) => [name!, "x".repeat(40)]));
      const { issues, close } = await boot({ config, plugins: [], env, logger: createLogger("silent") });
      await close();
      const errors = issues.filter(({ severity }) => severity === "error").map(formatIssue);
      assert.deepEqual(errors, [], `${chapter}:\n${snippet}`);
    }
  assert.ok(found > 20, String(found));
});

test("every chapter with commands or parts of a manifest says at its beginning for which manifest they are", () => {
  for (const [path, text] of DOCUMENTS) {
    if (path === "README.md" || /^docs\/(decisions|reference)/.test(path)) continue;
    const blocks = text.match(/^```(?:sh|bash|yaml)\n(?:.*127\.0\.0\.1:3141|[a-z]+:)/gms);
    if (blocks !== null) assert.match(text.slice(0, 1_500), /service\.yaml|the manifest/i, path);
  }
});
