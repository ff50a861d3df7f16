/** The console as browsers get it: one script, made of modules that import one another by name, and one style sheet. */
import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { HeaderList } from "../../http/exchange.ts";
import type { PageReply } from "../../http/route.ts";
import { notFound } from "../../lib/errors.ts";
import { onceLoaded } from "./once.ts";

const FOLDER = new URL("./console/", import.meta.url);

interface ConsoleFiles {
  /** Changes whenever a file changes. */
  version(): Promise<string>;
  /** Compressed where the `accept-encoding` of the request allows it. Throws `not_found` for an unknown name. */
  asset(name: string, accepted?: string): Promise<PageReply>;
}

interface Loaded {
  version: string;
  pages: ReadonlyMap<string, readonly [plain: PageReply, compressed: PageReply]>;
}

/** The files are read at first use and then kept. */
export function createConsoleFiles(): ConsoleFiles {
  const files = onceLoaded(load);
  return {
    version: async () => (await files()).version,
    async asset(name, accepted = "") {
      const forms = (await files()).pages.get(name);
      if (forms === undefined) throw notFound(`the console has no asset called "${name.slice(0, 100)}"`);
      return forms[/\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/.test(accepted) ? 1 : 0];
    },
  };
}

async function load(): Promise<Loaded> {
  const names = (await readdir(FOLDER)).filter((name) => /\.(?:js|css)$/.test(name)).sort();
  const read = async (name: string) => [name, await readFile(new URL(name, FOLDER), "utf8")] as const;
  const sources = new Map(await Promise.all(names.map(read)));
  const styles = names.filter((name) => name.endsWith(".css")).map((name) => sources.get(name));
  const texts = { "main.js": bundle(sources), "main.css": styles.join("") };
  const pages = Object.entries(texts).map(async ([name, text]) => [name, await forms(name, text)] as const);
  return { version: digest(Object.values(texts).join()).slice(0, 12), pages: new Map(await Promise.all(pages)) };
}

const IMPORT = /^import \{([^}]*)\} from "\.\/([\w-]+\.js)";$/gm;
const EXPORT = /^export (?=(?:async )?(?:class|const|function\*?) (\w+))/gm;
const COMMENT = /^ *(?:\/\*\*(?:[^*]|\*(?!\/))*\*\/|\/\/.*)\n/gm;

/** One script: each module is a function that returns what it exports, after those that it imports. */
function bundle(sources: ReadonlyMap<string, string>): string {
  const made = new Map<string, string>();
  const variable = (name: string) => `module_${name.replace(/\W/g, "_")}`;
  const add = (name: string, wrap: (text: string, exported: readonly string[]) => string) => {
    const exported: string[] = [];
    const text = sources
      .get(name)!
      .replace(COMMENT, "")
      .replace(IMPORT, (_, names: string, from: string) => {
        if (!made.has(from))
          add(from, (inner, all) => `const ${variable(from)} = (() => {\n${inner}return { ${all} };\n})();\n`);
        return `const {${names.replaceAll(" as ", ": ")}} = ${variable(from)};`;
      })
      .replace(EXPORT, (_, each: string) => {
        exported.push(each);
        return "";
      });
    made.set(name, wrap(text, exported));
  };
  // The first module waits for a person to sign in, which a function could not.
  add("main.js", (text) => text);
  return [...made.values()].join("");
}

async function forms(name: string, text: string): Promise<readonly [PageReply, PageReply]> {
  const vary = ["vary", "accept-encoding"];
  const compressed = await promisify(gzip)(text, { level: 9 });
  return [keptPage(name, text, vary), keptPage(name, compressed, [...vary, "content-encoding", "gzip"])];
}

/** A script or style sheet whose address contains a version, so that a copy may be cached forever. */
export function keptPage(name: string, content: string | Uint8Array, headers: HeaderList = []): PageReply {
  const body = Buffer.from(content);
  const type = `text/${name.endsWith(".js") ? "javascript" : "css"}; charset=utf-8`;
  const cache = ["etag", `"${digest(body).slice(0, 32)}"`, "cache-control", "public, max-age=31536000, immutable"];
  return { body, type, headers: [...cache, "x-content-type-options", "nosniff", ...headers] };
}

export const digest = (content: string | Uint8Array) => createHash("sha256").update(content).digest("hex");
