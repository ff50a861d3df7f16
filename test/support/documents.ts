/** README.md and docs/, their examples, and what a reader does with them. */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { TestContext } from "node:test";
import { ROOT, run } from "./command-line.ts";
import { EXAMPLES } from "./plugin-folder.ts";
import type { Loose } from "./served-upstream.ts";

/** Texts by their path below the root. */
export const DOCUMENTS = new Map(
  ["README.md", ...readdirSync(join(ROOT, "docs"), { encoding: "utf8", recursive: true }).map((name) => `docs/${name}`)]
    .filter((path) => path.endsWith(".md"))
    .map((path) => [path, readFileSync(join(ROOT, path), "utf8")]),
);
export const README = DOCUMENTS.get("README.md")!;
export const EVERYTHING = [...DOCUMENTS.values()].join("\n");
export const FLAGSHIP = readFileSync(join(ROOT, "service.yaml"), "utf8");

/** Chapters whose blocks are read in order, all of them, by a test of theirs (`reader.ts`). */
export const FOLLOWED = ["docs/tutorial.md", "docs/recipes.md", "docs/runbook.md", "docs/coming-from.md"];

/** The one code block of a language that holds a text, in the other chapters. */
export function block(language: string, holds: string): string {
  const texts = [...DOCUMENTS].filter(([path]) => !FOLLOWED.includes(path)).map(([, text]) => text);
  const blocks = [...texts.join("\n").matchAll(/^```(\w+)\n(.*?)^```/gms)].filter(([, name]) => name === language);
  const found = blocks.map(([, , text]) => text!).filter((text) => text.includes(holds));
  assert.equal(found.length, 1, `README.md and docs/ have one ${language} block with ${holds}`);
  return found[0]!;
}

/** A shell command of the documents against another address. */
export async function shell(command: string, url: string): Promise<Loose> {
  const { code, stdout, stderr } = await run("sh", ["-c", command.replaceAll("http://127.0.0.1:3141", url)]);
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout);
}

export async function folder(t: TestContext, files: Record<string, string>): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "penstock-readme-"));
  t.after(() => rm(path, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(path, name)), { recursive: true });
    await writeFile(join(path, name), text);
  }
  // The reader writes his manifests beside the plugins that are there.
  if (!existsSync(join(path, "plugins"))) await symlink(EXAMPLES, join(path, "plugins"));
  return path;
}

/** Maps are joined, everything else is replaced: what a reader does who writes lines into a manifest. */
export function merge(into: Loose, from: Loose): Loose {
  const maps = [into, from].every((value) => typeof value === "object" && value !== null && !Array.isArray(value));
  if (!maps) return from;
  const keys = Object.entries(from).map(([key, value]) => [key, key in into ? merge(into[key], value) : value]);
  return { ...into, ...Object.fromEntries(keys) };
}

/** The status that curl gets. */
export async function statusOf(request: string): Promise<string> {
  const { code, stdout, stderr } = await run("sh", ["-c", `curl -s -o /dev/null -w '%{http_code}' ${request}`]);
  assert.equal(code, 0, stderr);
  return stdout;
}
