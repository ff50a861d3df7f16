/** Clients that use a store as chance has it: few keys, so that they meet, and expectations of which some are out of date. */
import type { Commit, Row, Store } from "../../core/storage/store.ts";
import type { Random } from "../fuzz/random.ts";
import { type Call, type History, type Reply, record } from "./history.ts";

const ROWS = ["a/1", "a/2", "a/_", "b", "b/1"];
const COUNTERS = ["n/1", "n/2"];
const PREFIXES = ["a/", "b", "n/", "a/_"];
/** A counter that is put is a multiple of this, and additions are powers of two below: every version has a value of its own. */
const PUT_COUNTER = 2 ** 40;
/** SQLite keeps a value of so many characters apart from its key. */
const LARGE = 1_000;

type Version = readonly [key: string, revision: number | null, value: string | null];

/** Numbers that no other operation of a case gets. */
interface Numbers {
  value(): number;
  /** The power of two by which a counter is added to; undefined when they are used up. */
  power(key: string): number | undefined;
}

/** Lives of a process share the powers of two that fit below `PUT_COUNTER`. */
const POWERS = Math.log2(PUT_COUNTER);

/** @param life which of so many processes it is that go on after each other */
export function createNumbers(life = 0, lives = 1): Numbers {
  let last = life * 1_000;
  const powers = new Map<string, number>();
  const most = Math.floor(POWERS / lives);
  return {
    value: () => ++last,
    power(key) {
      const used = powers.get(key) ?? 0;
      if (used === most) return undefined;
      powers.set(key, used + 1);
      return life * most + used;
    },
  };
}

/** What the clients of one process know. */
interface Shared {
  readonly history: History;
  readonly numbers: Numbers;
  readonly random: Random;
  /** What the keys of the case begin with. */
  readonly prefix: string;
  /** How likely a commit is to change a row. */
  readonly density: number;
  /** Versions of rows that were seen or written, the last one at the end. */
  readonly known: Map<string, Version[]>;
}

interface Play {
  history: History;
  numbers: Numbers;
  random: Random;
  prefix: string;
  /** How many calls each client makes. */
  calls: number;
  /** A client for each, with the store that it uses. */
  stores: readonly Store[];
}

/** Lets the clients work at once, each one call or a handful after the other. */
export async function play({ stores, calls, ...given }: Play): Promise<void> {
  const shared: Shared = { ...given, density: given.random.pick([0.15, 0.3, 0.6]), known: new Map() };
  await Promise.all(stores.map((store) => client(shared, store, calls)));
}

async function client(shared: Shared, store: Store, calls: number): Promise<void> {
  const { random } = shared;
  for (let made = 0; made < calls; ) {
    for (let turns = random.below(4); turns > 0; turns--) await new Promise(setImmediate);
    // Those of one moment are one transaction.
    const together = random.chance(0.3) ? 2 + random.below(2) : 1;
    made += together;
    await Promise.all(Array.from({ length: together }, () => one(shared, store)));
  }
}

async function one(shared: Shared, store: Store): Promise<void> {
  const { random } = shared;
  if (random.chance(0.35)) {
    await make(shared, store, readOf(shared));
    return;
  }
  const commit = commitOf(shared);
  const keys = touched(commit);
  if (keys.length > 0 && random.chance(0.5)) await make(shared, store, { kind: "get", keys });
  const expected = expectationsOf(shared, commit);
  const reply = await commitWith(shared, store, commit, expected);
  if ((reply.kind === "unknown" || reply.kind === "failed") && random.chance(0.7)) {
    // The caller tries again what it expects not to have happened.
    await commitWith(shared, store, renewed(shared, commit), expected);
  }
}

const commitWith = (shared: Shared, store: Store, commit: Commit, expected: readonly Version[]): Promise<Reply> =>
  make(shared, store, {
    kind: "commit",
    commit: { ...commit, expect: expected.map(([key, revision]) => [key, revision]) },
    expected: expected.map(([key, , value]) => [key, value]),
  });

async function make(shared: Shared, store: Store, call: Call): Promise<Reply> {
  const { history, known } = shared;
  const reply = await record(history, store, call);
  if (reply.kind === "rows") {
    for (const row of reply.rows) if (row !== null) learn(known, row);
    if (call.kind === "get")
      for (const key of call.keys) if (!reply.rows.some((row) => row?.key === key)) forget(known, key);
  }
  if (reply.kind === "committed" && call.kind === "commit") {
    const { revision } = reply;
    for (const key of call.commit.delete ?? []) forget(known, key);
    for (const [key, value] of call.commit.put ?? []) learn(known, { key, value, revision });
  }
  return reply;
}

function learn(known: Map<string, Version[]>, { key, value, revision }: Row): void {
  known.set(key, [...(known.get(key) ?? []), [key, revision, value]]);
}

const forget = (known: Map<string, Version[]>, key: string): void => void known.get(key)?.push([key, null, null]);

function commitOf({ random, prefix, numbers, density }: Shared): Commit {
  const some = (list: readonly string[], chance: number) =>
    list.filter(() => random.chance(chance)).map((key) => prefix + key);
  // Who only deletes does so often without an expectation: then others find their rows gone.
  if (random.chance(0.15)) return { delete: some(ROWS, density) };
  const rows = some(ROWS, density);
  const deleted = some(ROWS, density / 2);
  const counted = some(COUNTERS, density);
  const clear = random.chance(0.08) ? [prefix + random.pick(PREFIXES)] : [];
  const setCounters = random.chance(0.04) ? counted.splice(0, 1) : [];
  return { ...numbered(numbers, { put: [...rows, ...setCounters], add: counted }), delete: deleted, clear };
}

const touched = ({ put = [], delete: removed = [], add = [] }: Commit): string[] => [
  ...put.map(([key]) => key),
  ...removed,
  ...add.map(([key]) => key),
];

/** The same changes with values of their own. */
const renewed = ({ numbers }: Shared, { put = [], add = [], ...rest }: Commit): Commit => ({
  ...numbered(numbers, { put: put.map(([key]) => key), add: add.map(([key]) => key) }),
  ...rest,
});

/** Gives each put and each addition a number that no other one of the history has. */
function numbered(numbers: Numbers, { put, add }: { put: string[]; add: string[] }): Pick<Commit, "put" | "add"> {
  const value = numbers.value();
  const text = value % 3 === 0 ? `v${value}`.padEnd(LARGE) : `v${value}`;
  return {
    put: put.map((key) => [key, /n\/\d$/.test(key) ? String(value * PUT_COUNTER) : JSON.stringify(text)]),
    add: add.flatMap((key): [string, number][] => {
      const power = numbers.power(key);
      return power === undefined ? [] : [[key, 2 ** power]];
    }),
  };
}

function expectationsOf({ random, prefix, known }: Shared, commit: Commit): Version[] {
  if (random.chance(0.3)) return [];
  const keys = new Set(touched(commit).filter(() => random.chance(0.6)));
  if (random.chance(0.3)) keys.add(prefix + random.pick(random.chance(0.8) ? ROWS : COUNTERS));
  return [...keys].map((key): Version => {
    const versions = known.get(key) ?? [];
    const [last, some] = [versions.at(-1), versions[random.below(versions.length)]];
    const absent: Version = [key, null, null];
    return random.weighted([
      [8, last ?? absent],
      [1, some ?? absent],
      [1, absent],
    ]);
  });
}

function readOf({ random, prefix }: Shared): Call {
  const any = () => prefix + random.pick([...ROWS, ...COUNTERS]);
  const within = prefix + random.pick(["", "", "a/", "b", "n/"]);
  const bounds = { ...(random.chance(0.2) && { after: any() }), ...(random.chance(0.2) && { before: any() }) };
  const limit = random.weighted([
    [3, 100],
    [1, 1 + random.below(3)],
  ]);
  return random.weighted<Call>([
    [3, { kind: "get", keys: Array.from({ length: 1 + random.below(3) }, any) }],
    [2, { kind: "tail", tail: { prefix: within, ...bounds, limit, otherKey: any() } }],
    [
      3,
      {
        kind: "scan",
        range: { prefix: within, ...bounds, limit, reverse: random.chance(0.3), skip: random.chance(0.1) ? 1 : 0 },
      },
    ],
  ]);
}
