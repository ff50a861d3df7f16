/** A SQLite file with very many conversations, written by the memory itself, in this process and in large commits. */
import { existsSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { pino } from "pino";
import { boot } from "../core/app/boot.ts";
import { EVERYTHING } from "../core/identity/principal.ts";
import { ServiceError } from "../core/lib/errors.ts";
import type { MemoryAccess } from "../core/memory/scoped.ts";
import { numeral } from "./numbers.ts";
import { WORDS } from "./replies.ts";

/** Messages in each conversation. */
export const MESSAGES = 5;
/** One conversation in five belongs to a reader, who has this many; each of the others to a user of its own. */
export const EACH_READER = 50;

/** Conversations in one commit. */
const WAVE = 1_000;

interface Population {
  /** Number of conversations `conversation-N`, each of `user-N`. */
  single: number;
  /** Number of users `reader-N`. */
  readers: number;
}

export function population(conversations: number): Population {
  const readers = Math.floor(conversations / 5 / EACH_READER);
  return { single: conversations - readers * EACH_READER, readers };
}

function ownerOf(number: number, { single }: Population): string {
  return number < single ? `user-${numeral(number)}` : `reader-${numeral(Math.floor((number - single) / EACH_READER))}`;
}

const idOf = (number: number) => `conversation-${numeral(number)}`;

async function exists(memory: MemoryAccess, number: number): Promise<boolean> {
  try {
    await memory.get(idOf(number));
    return true;
  } catch (error) {
    if (error instanceof ServiceError && error.kind === "not_found") return false;
    throw error;
  }
}

/** How many waves an interrupted build has started. */
async function wavesOf(memory: MemoryAccess, waves: number): Promise<number> {
  let [low, high] = [0, waves];
  while (low < high) {
    const middle = (low + high) >> 1;
    const numbers = Array.from({ length: WAVE }, (_, index) => middle * WAVE + index);
    const found = await Promise.all(numbers.map((number) => exists(memory, number)));
    if (found.some(Boolean)) low = middle + 1;
    else high = middle;
  }
  return low;
}

async function fillWave(memory: MemoryAccess, numbers: readonly number[], people: Population): Promise<void> {
  const messages = Array.from({ length: MESSAGES }, (_, index) => ({
    role: index % 2 === 0 ? ("user" as const) : ("assistant" as const),
    parts: [{ type: "text", text: WORDS }],
  }));
  const append = (number: number) => {
    const owner = { userId: ownerOf(number, people), resourceId: "assistant", title: `Talk ${number}` };
    return memory.append({ id: idOf(number), ...owner }, messages);
  };
  await Promise.all(numbers.map(append));
}

/** Fills a new or unfinished file until it has this many conversations. Resolves when it is closed. */
export async function build(file: string, conversations: number, say: (line: string) => void): Promise<void> {
  mkdirSync(dirname(file), { recursive: true });
  const fresh = !existsSync(file);
  const booted = await boot({
    config: join(dirname(fileURLToPath(import.meta.url)), "memory.yaml"),
    plugins: [],
    // Durability does not matter: after a crash of the machine the file is built again.
    env: { BENCH_STORE: `sqlite:${file}?synchronous=normal` },
    logger: pino({ level: "warn" }, pino.destination(2)),
    store: true,
  });
  try {
    const memory = booted.service?.memories.get("default")?.for(EVERYTHING);
    if (memory === undefined) throw new Error(`memory.yaml does not boot: ${JSON.stringify(booted.issues)}`);
    const people = population(conversations);
    const waves = Math.ceil(conversations / WAVE);
    // The last wave may be incomplete, but each conversation in it is complete, because it was one commit.
    const begun = fresh ? 0 : Math.max(0, (await wavesOf(memory, waves)) - 1);
    const began = performance.now();
    for (let wave = begun; wave < waves; wave += 1) {
      const size = Math.min(WAVE, conversations - wave * WAVE);
      let numbers = Array.from({ length: size }, (_, index) => wave * WAVE + index);
      if (!fresh && wave === begun) {
        const found = await Promise.all(numbers.map((number) => exists(memory, number)));
        numbers = numbers.filter((_, index) => !found[index]);
      }
      await fillWave(memory, numbers, people);
      if (wave % 50 === 49) {
        const rate = ((wave - begun + 1) * WAVE * 1_000) / (performance.now() - began);
        say(
          `${((wave + 1) * WAVE).toLocaleString("en-US")} conversations, ${Math.round(rate).toLocaleString("en-US")} a second`,
        );
      }
    }
  } finally {
    await booted.close();
  }
}
