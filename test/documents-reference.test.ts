/** docs/reference/: the pages that `npm run generate` writes are those of the sources, and nothing is left out. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ROUTES } from "../core/api/routes/index.ts";
import { pages } from "../docs/reference/generate.ts";
import { ROOT } from "./support/command-line.ts";
import { DOCUMENTS } from "./support/documents.ts";

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
      if (![...rows].some((row) => row.startsWith(`| \`${key}\` |`) && row.includes(text)))
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
