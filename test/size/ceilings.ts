/** Ceilings for the size of core/ and for how far requests go through it. They are in ceilings.json, one a line, and only fall. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT, run } from "../support/command-line.ts";
import { tokensByRoom } from "./tokens.ts";

/** Numbers by what they count. */
type Sizes = Readonly<Record<string, number>>;

const FILE = join(ROOT, "test/size/ceilings.json");
/** By how much a ceiling may be exceeded. */
const TOLERANCE = 0.02;
/** For hangs only: the walks take fifteen seconds, most of them waiting. */
const HANG_MS = 300_000;

export const readCeilings = (): Sizes => JSON.parse(readFileSync(FILE, "utf8"));
export const writeCeilings = (sizes: Sizes): void => writeFileSync(FILE, `${JSON.stringify(sizes, null, 2)}\n`);

export function measureTokens(): Sizes {
  const rooms = [...tokensByRoom()];
  const all = rooms.reduce((sum, [, tokens]) => sum + tokens, 0);
  return Object.fromEntries([
    ["tokens of core", all],
    ...rooms.map(([room, size]) => [`tokens of core/${room}`, size]),
  ]);
}

export async function measureWalks(): Promise<Sizes> {
  const args = ["--import", "./test/size/recorder.mjs", "--import", "tsx", "test/size/walk.ts"];
  const { code, stdout, stderr } = await run(process.execPath, args, { hang: HANG_MS });
  if (code !== 0) throw new Error(`the walks ended with ${code}: ${stderr}`);
  return Object.fromEntries(
    Object.entries(JSON.parse(stdout) as Record<string, string[]>).flatMap(([walk, calls]) => {
      const files = calls.map((call) => call.slice(0, call.indexOf(":")));
      const rooms = files.map((file) => file.split("/")[0]);
      return [
        [`functions of ${walk}`, new Set(calls).size],
        [`files of ${walk}`, new Set(files).size],
        [`rooms of ${walk}`, new Set(rooms).size],
      ];
    }),
  );
}

export const isExceeded = (size: number, ceiling: number): boolean => size > ceiling * (1 + TOLERANCE);

/** What is above its ceiling, or has none, each as a sentence. */
export function exceeded(sizes: Sizes, ceilings: Sizes): string[] {
  return Object.entries(sizes).flatMap(([name, size]) => {
    const ceiling = ceilings[name];
    if (ceiling === undefined) return [`${name}: ${size}, and no ceiling`];
    if (!isExceeded(size, ceiling)) return [];
    return [`${name}: ${size}, ${((size / ceiling - 1) * 100).toFixed(1)} % above the ceiling of ${ceiling}`];
  });
}

/** The ceilings that are kept: each is what is there, if that is less. A new room gets one, as the total does not rise with it. */
export const lowered = (sizes: Sizes, ceilings: Sizes): Sizes =>
  Object.fromEntries(Object.entries(sizes).map(([name, size]) => [name, Math.min(size, ceilings[name] ?? size)]));
