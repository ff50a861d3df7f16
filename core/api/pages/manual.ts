/** `GET /docs`: the manual of this version, from `docs/`, with what a search looks at. */
import { readdir, readFile } from "node:fs/promises";
import { sep } from "node:path";
import { type KeptFiles, keepFiles } from "./console-files.ts";

const DOCS = new URL("../../../docs/", import.meta.url);
/** A comment in it is no heading. */
const CODE = /^```.*?^```$/gms;

/** The chapters, but for those about decisions, which are for who changes the source. Each is an asset: `limits.store.md` is `docs/limits/store.md`. */
export async function loadManual(): Promise<KeptFiles> {
  const paths = (await readdir(DOCS, { recursive: true })).filter((path) => /^(?!decisions).*\.md$/.test(path)).sort();
  const texts = await Promise.all(paths.map((path) => readFile(new URL(path, DOCS), "utf8")));
  const names = paths.map((path) => path.replace(sep, "."));
  const index = names.map((name, at) => [
    name,
    texts[at]!.replace(CODE, (code) => code.replaceAll("\n#", "\n #"))
      .split(/^(?=#+ )/m)
      .map(wordsOf),
  ]);
  const chapters = Object.fromEntries(names.map((name, at) => [name, texts[at]!]));
  return keepFiles({ "index.js": `export const index = ${JSON.stringify(index)};`, ...chapters });
}

/** The first line, which is the heading, and every word once. */
const wordsOf = (section: string) => [
  section.split("\n", 1)[0],
  [...new Set(section.toLowerCase().match(/[\p{L}\d_]+/gu))].join(" "),
];
