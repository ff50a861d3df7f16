/** A reader who follows a chapter from its first block to its last: writes the files, runs the commands, and compares the answers. */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { parse, stringify } from "yaml";
import { PENSTOCK, run, type Served, serve } from "./command-line.ts";
import { merge } from "./documents.ts";
import type { Loose } from "./served-upstream.ts";

interface Reading {
  /** Where the reader begins. */
  folder: string;
  /** Added to the environment of all that he starts. */
  env?: Record<string, string>;
}

const PROGRAM = `"${process.execPath}" "${PENSTOCK}"`;
const BLOCK = /^```(\w+)\n(.*?)^```/gms;
/** The first line of a block that is a file, or a part of one. */
const FILE = /^(?:#|\/\/) (\S+)\n/;
/** For hangs only. */
const HANG_MS = 240_000;

/** Blocks of other languages than these are for people alone. */
const LANGUAGES = ["bash", "ini", "json", "text", "ts", "yaml"];

export async function follow(
  test: { after(end: () => unknown): void },
  chapter: string,
  { folder, env = {} }: Reading,
): Promise<void> {
  let cwd = folder;
  let service: Served | undefined;
  let options: string[] = [];
  let isStale = false;
  let command = "";
  let output = "";

  async function start(args: string[]) {
    await service?.interrupt("SIGTERM");
    options = args;
    service = await serve(test, [process.execPath, program(), "serve", "--port", "0", ...options], { cwd, env });
    isStale = false;
  }
  /** The build of a service brings its own. */
  const program = () => (existsSync(join(cwd, "dist/penstock.js")) ? join(cwd, "dist/penstock.js") : PENSTOCK);

  async function shell(text: string) {
    if (text.includes("http://127.0.0.1:3141") && isStale) await start(options);
    const own = text
      .replaceAll("http://127.0.0.1:3141", service?.url ?? "http://127.0.0.1:3141")
      .replaceAll("npx penstock-gateway", PROGRAM)
      .replace(/^npm run eval(?: --)?/gm, `${PROGRAM} eval test/evals.yaml`);
    const { code, stdout, stderr } = await run("sh", ["-c", own], { cwd, env });
    assert.equal(code, 0, `${text}\n${stdout}${stderr}`);
    output = stdout;
  }

  const readers: Record<string, (text: string) => Promise<void> | void> = {
    async bash(text) {
      command = text;
      // SQLite stores are for one process.
      if (/penstock-gateway (executions|vacuum|restore)/.test(text)) {
        await service?.interrupt("SIGTERM");
        isStale = true;
      }
      for (const part of text.trimEnd().split(/\n(?=npm start|cd )|(?<=^npm start[^\n]*)\n/m)) {
        const [, args] = /^npm start(?: -- (.*))?$/.exec(part) ?? [];
        const [, into, rest = ""] = /^cd (\S+) && (.*)$/.exec(part) ?? [];
        if (into !== undefined) cwd = join(cwd, into);
        if (part.startsWith("npm start")) await start(args?.split(" ") ?? []);
        else if (rest.startsWith("node dist/penstock.js serve")) await start(rest.split(" ").slice(3));
        else if (rest !== "npm install") await shell(rest === "" ? part : rest);
      }
    },
    async json(text) {
      const begun = performance.now();
      // What goes on by itself is asked for until it is there.
      for (;;) {
        const difference = differs(JSON.parse(text), JSON.parse(output));
        if (difference === null) return;
        const isRead = /^curl [^|]*$/.test(command) && !command.includes(" -d ");
        assert.ok(isRead && performance.now() - begun < HANG_MS, `${command}${difference}\n${output}`);
        await pause(50);
        await shell(command);
      }
    },
    text(text) {
      for (const line of text.trimEnd().split("\n")) assert.ok(output.includes(line), `${command}${line}\n${output}`);
    },
    yaml: (text) => write(text, (own, more) => stringify(merge(parse(own) ?? {}, parse(more)))),
    ini: (text) => write(text, (own, more) => `${own}${more}`),
    ts: (text) => write(text, (_own, whole) => whole),
  };

  function write(text: string, join_: (own: string, more: string) => string) {
    const [, name] = FILE.exec(text) ?? [];
    assert.ok(name !== undefined, `the block says for which file it is:\n${text}`);
    const path = join(cwd, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, join_(existsSync(path) ? readFileSync(path, "utf8") : "", text));
    isStale = true;
  }

  const blocks = [...chapter.matchAll(BLOCK)].filter(([, language]) => LANGUAGES.includes(language!));
  assert.ok(blocks.length > 0);
  for (const [, language, text] of blocks) await readers[language!]!(text!);
  await service?.interrupt("SIGTERM");
}

/** The first difference of what a chapter shows: maps and lists may have more than it, and `...` stands for any text. */
function differs(shown: Loose, got: Loose, path = "answer"): string | null {
  if (typeof shown === "string") {
    const [first = "", ...others] = shown.split("...").map((part) => part.replace(/[^\w\s]/g, "\\$&"));
    const isSame = typeof got === "string" && new RegExp(`^${[first, ...others].join(".*")}$`, "s").test(got);
    return isSame ? null : `${path}: ${JSON.stringify(got)} is not ${JSON.stringify(shown)}`;
  }
  if (typeof shown !== "object" || shown === null)
    return Object.is(shown, got) ? null : `${path}: ${JSON.stringify(got)} is not ${JSON.stringify(shown)}`;
  for (const [key, value] of Object.entries(shown)) {
    const difference = differs(value, got?.[key], `${path}.${key}`);
    if (difference !== null) return difference;
  }
  return null;
}
