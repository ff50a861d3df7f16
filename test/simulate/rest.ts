/** What a store must not have once nothing is at work: rows of work, and rows that belong to nothing. */
import { OPEN_TASKS } from "../../core/a2a/task-rows.ts";
import {
  CONVERSATIONS,
  conversationOfKey,
  decodeNumber,
  EXECUTIONS,
  indexedConversation,
  indexedExecution,
  OPEN_EXECUTIONS,
  STOP_REQUESTS,
  TURN_CLAIMS,
  TURN_INTERRUPTS,
  UNFINISHED_COPIES,
} from "../../core/storage/keys.ts";
import type { Row } from "../../core/storage/store.ts";

/** Rows of what is at work. A question about a direct call whose client never heard of it is open until it expires. */
const WORK = [
  OPEN_EXECUTIONS,
  STOP_REQUESTS,
  "xr/",
  TURN_CLAIMS,
  TURN_INTERRUPTS,
  UNFINISHED_COPIES,
  OPEN_TASKS,
  "a2p/",
  "aw/execution/",
  "ar/",
];

/** The second part of a key, which is a number. */
const numberIn = (key: string): number => decodeNumber(key.split("/")[1]!);

interface Kind {
  readonly rows: string;
  /** Of a row under that prefix: the thing whose row it is; null for all rows but one of a thing. */
  readonly whole: (key: string) => number | string | null;
  /** What the other rows say that they belong to. */
  readonly parts: readonly (readonly [prefix: string, of: (row: Row) => number | string])[];
  /** A prefix under which each thing has exactly one row. */
  readonly index: string;
}

const ofValue = ({ value }: Row): number => JSON.parse(value) as number;
const ofEnd = ({ key }: Row): string => key.split("/").at(-1)!;

const KINDS: readonly Kind[] = [
  {
    rows: EXECUTIONS,
    whole: (key) => (key.endsWith("/r") ? numberIn(key) : null),
    parts: [
      [EXECUTIONS, ({ key }) => numberIn(key)],
      ["xn/", ofValue],
      ["xi/", ofValue],
      ["xs/", ({ key }) => indexedExecution(key)],
      ["xw/", ({ key }) => indexedExecution(key)],
      ["xu/", ({ key }) => indexedExecution(key)],
      ["xv/", ({ key }) => indexedExecution(key)],
    ],
    index: "xw/",
  },
  {
    rows: CONVERSATIONS,
    whole: conversationOfKey,
    parts: [
      [CONVERSATIONS, ({ key }) => numberIn(key)],
      ["id/", ofValue],
      ["iu/", ofValue],
      ["u/", ({ key }) => indexedConversation(key)],
      ["r/", ({ key }) => indexedConversation(key)],
    ],
    index: "u/",
  },
  {
    rows: "a2/",
    whole: (key) => key.split("/").at(-1)!,
    parts: [
      ["a2i/", ofEnd],
      ["a2u/", ofEnd],
    ],
    index: "a2i/",
  },
  {
    rows: "ap/",
    whole: (key) => key.slice("ap/".length),
    parts: ["as/", "aa/", "au/", "av/"].map((prefix) => [prefix, ofEnd] as const),
    index: "as/",
  },
  { rows: "ik/", whole: (key) => key.slice("ik/".length), parts: [["it/", ofEnd]], index: "it/" },
];

/** @param read gives the rows of a prefix */
export async function leftovers(read: (prefix: string) => Promise<Row[]>): Promise<string[]> {
  const work = (await Promise.all(WORK.map(read))).flat();
  const left = work.map(({ key, value }) => `${key} of what has ended: ${value}`);
  for (const { rows, whole, parts, index } of KINDS) {
    const known = new Map<number | string, number>();
    for (const { key } of await read(rows)) {
      const of = whole(key);
      if (of !== null) known.set(of, 0);
    }
    for (const [prefix, of] of parts)
      for (const row of await read(prefix)) {
        const count = known.get(of(row));
        if (count === undefined) left.push(`${row.key} of nothing: ${row.value}`);
        else if (prefix === index) known.set(of(row), count + 1);
      }
    for (const [of, count] of known) if (count !== 1) left.push(`${of} is ${count} times under ${index}`);
  }
  return left;
}
