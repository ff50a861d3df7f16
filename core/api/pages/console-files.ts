/** The files of the console as browsers get them: plain modules that import one another by name. */
import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import type { PageReply } from "../../http/route.ts";
import { notFound } from "../../lib/errors.ts";
import { onceLoaded } from "./once.ts";

const FOLDER = new URL("./console/", import.meta.url);
const TYPES: Record<string, string> = {
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
};

/** The names of the files, of styles in cascading order, and a version that changes whenever a file changes. */
export interface ConsoleListing {
  version: string;
  styles: readonly string[];
  modules: readonly string[];
}

interface ConsoleFiles {
  listing(): Promise<ConsoleListing>;
  /** Throws `not_found` for an unknown name. */
  asset(name: string): Promise<PageReply>;
}

interface Loaded extends ConsoleListing {
  pages: ReadonlyMap<string, PageReply>;
}

/** The files are read at first use and then kept. */
export function createConsoleFiles(): ConsoleFiles {
  const files = onceLoaded(load);
  return {
    listing: files,
    async asset(name) {
      const page = (await files()).pages.get(name);
      if (page === undefined) throw notFound(`the console has no asset called "${name.slice(0, 100)}"`);
      return page;
    },
  };
}

const contentType = (name: string): string | undefined => TYPES[name.slice(name.lastIndexOf(".") + 1)];

async function load(): Promise<Loaded> {
  const names = (await readdir(FOLDER)).filter((name) => contentType(name) !== undefined).sort();
  const texts = await Promise.all(names.map((name) => readFile(new URL(name, FOLDER), "utf8")));
  const version = digest(texts.join("\0")).slice(0, 12);
  const pages = names.map((name, index): [string, PageReply] => [name, makePage(name, texts[index]!, version)]);
  const ending = (end: string) => names.filter((name) => name.endsWith(end));
  return { version, styles: ending(".css"), modules: ending(".js"), pages: new Map(pages) };
}

/** The address of a file contains the version, in imports too, so that a copy may be cached forever. */
function makePage(name: string, text: string, version: string): PageReply {
  const body = Buffer.from(
    name.endsWith(".js") ? text.replace(/(\bfrom "\.\/[\w-]+\.js)"/g, `$1?v=${version}"`) : text,
  );
  const cache = ["etag", `"${digest(body).slice(0, 32)}"`, "cache-control", "public, max-age=31536000, immutable"];
  return { body, type: contentType(name), headers: [...cache, "x-content-type-options", "nosniff"] };
}

const digest = (content: string | Uint8Array) => createHash("sha256").update(content).digest("hex");
