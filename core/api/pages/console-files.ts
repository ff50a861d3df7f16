/** Files as browsers keep them, and the console: one script, made of modules that import one another by name, and one style sheet. */
import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { HeaderList } from "../../http/exchange.ts";
import type { PageReply } from "../../http/route.ts";

const FOLDER = new URL("./console/", import.meta.url);
const TYPES: Record<string, string> = { js: "javascript", css: "css", md: "markdown" };

export interface KeptFiles {
  /** Changes whenever a file changes. It is in their addresses, so that copies may be cached forever. */
  version: string;
  pages: ReadonlyMap<string, readonly [plain: PageReply, compressed: PageReply]>;
}

/** @param texts by name */
export async function keepFiles(texts: Readonly<Record<string, string>>): Promise<KeptFiles> {
  const pages = Object.entries(texts).map(async ([name, text]) => [name, await forms(name, text)] as const);
  const version = createHash("sha256").update(Object.values(texts).join()).digest("hex").slice(0, 12);
  return { version, pages: new Map(await Promise.all(pages)) };
}

async function forms(name: string, text: string): Promise<readonly [PageReply, PageReply]> {
  const page = (body: Buffer, headers: HeaderList = []): PageReply => {
    const etag = `"${createHash("sha256").update(body).digest("hex").slice(0, 32)}"`;
    const cache = ["etag", etag, "cache-control", "public, max-age=31536000, immutable", "vary", "accept-encoding"];
    const type = `text/${TYPES[name.slice(name.lastIndexOf(".") + 1)]}; charset=utf-8`;
    return { body, type, headers: [...cache, "x-content-type-options", "nosniff", ...headers] };
  };
  return [page(Buffer.from(text)), page(await promisify(gzip)(text, { level: 9 }), ["content-encoding", "gzip"])];
}

export async function loadConsole(): Promise<KeptFiles> {
  const names = (await readdir(FOLDER)).filter((name) => /\.(?:js|css)$/.test(name)).sort();
  const read = async (name: string) => [name, await readFile(new URL(name, FOLDER), "utf8")] as const;
  const sources = new Map(await Promise.all(names.map(read)));
  const styles = names.filter((name) => name.endsWith(".css")).map((name) => sources.get(name));
  const scripts = { "main.js": bundle(sources, "main.js"), "manual.js": bundle(sources, "manual.js") };
  return keepFiles({ ...scripts, "main.css": styles.join("") });
}

const IMPORT = /^import \{([^}]*)\} from "\.\/([\w-]+\.js)";$/gm;
const EXPORT = /^export (?=(?:async )?(?:class|const|function\*?) (\w+))/gm;
/** Without the comments that begin a line. */
const withoutComments = (text: string) =>
  text
    .split(/^ *\/\*\*/m)
    .map((part, index) => (index === 0 ? part : part.slice(part.indexOf("*/") + 3)))
    .join("")
    .replace(/^ *\/\/.*\n/gm, "");

/** One script: each module is a function that returns what it exports, after those that it imports. */
function bundle(sources: ReadonlyMap<string, string>, first: string): string {
  const made = new Map<string, string>();
  const variable = (name: string) => `module_${name.replace(/\W/g, "_")}`;
  const add = (name: string, wrap: (text: string, exported: readonly string[]) => string) => {
    const exported: string[] = [];
    const text = withoutComments(sources.get(name)!)
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
  add(first, (text) => text);
  return [...made.values()].join("");
}
