/**
 * The database of a simulation, with what PostgreSQL promises: a commit happens at one moment, as a whole or not at all, and so does a
 * read. Between a process and it there are delays, lost connections and lost notices.
 */

import { OPEN_EXECUTIONS, openExecutionKey, PROCESSES } from "../../core/storage/keys.ts";
import type { Commit, Joined, Range, Row, Store, Tail } from "../../core/storage/store.ts";
import type { SimulatedProcess } from "./process.ts";
import type { World } from "./world.ts";

/** What one process asks. Commits of one tick are one transaction. */
export type Asked =
  | { readonly kind: "commit"; readonly commits: readonly Commit[] }
  | {
      readonly kind: "get";
      readonly lists: readonly { readonly keys: readonly string[]; readonly longest: number | undefined }[];
    }
  | { readonly kind: "scan"; readonly ranges: readonly Range[] }
  | { readonly kind: "tail"; readonly tails: readonly Tail[] };

/** One for each that was asked: revisions, rows or texts; an Error in the place of one that failed alone. */
export type Answers = readonly (number | Error | readonly (Row | undefined)[] | Joined | null)[];

/** The connection was lost. */
class Lost extends Error {
  readonly mayHaveHappened: boolean;
  constructor(mayHaveHappened: boolean) {
    super("the connection to the database was lost");
    this.mayHaveHappened = mayHaveHappened;
  }
}

/** How the network is, by the chances of what happens to a call. */
export interface Network {
  /** A call takes a second or so. */
  readonly slow: number;
  /** A call is not carried out. */
  readonly refused: number;
  /** It is carried out, and its answer is lost. */
  readonly unanswered: number;
  /** A notice does not arrive at one of the others. */
  readonly unheard: number;
}

/** How long a process waits before it gives up a connection that does not answer. */
const PATIENCE_MS = 2_000;
/** Where nothing is wrong, some calls take longer than the others all the same: so processes overtake each other. */
const SOME_LATE = 0.03;
const LATE_MS = 300;
/** Sessions of a process that is gone, as the server sees it. */
const SESSION_ENDS_MS = 300;

/** Keys of rows of journals. */
const JOURNAL = /^x\/[^/]+\/j\//;

export class Database {
  readonly world: World;
  network: Network = { slow: 0, refused: 0, unanswered: 0, unheard: 0 };
  /** When a call was last lost. */
  failed = Number.NEGATIVE_INFINITY;
  readonly #rows: Store;
  readonly #listening = new Map<SimulatedProcess, (notice: string) => void>();
  readonly #sessions = new Map<string, SimulatedProcess>();
  /** The processes that are cut off, by name, each with what tells that this is over. */
  readonly #away = new Map<string, () => void>();
  /** What was committed to journals, by key. */
  readonly #journals = new Map<string, string>();
  /** Whose a heartbeat is, by the key of its row; null once others have taken that process for gone. */
  readonly #leases = new Map<string, SimulatedProcess | null>();

  /** Processes that were taken for gone, and have not come back under another name. */
  readonly #gone = new Set<SimulatedProcess>();

  /** Who has an execution, by the key of its row among the open ones. */
  readonly #owners = new Map<string, SimulatedProcess>();

  /** A process that was taken for gone, and goes on once another reads a journal. */
  #taken: SimulatedProcess | null = null;

  constructor(world: World, rows: Store) {
    this.world = world;
    this.#rows = rows;
  }

  /** Begins with rows that others have left. */
  async begin(rows: readonly (readonly [key: string, value: string])[]): Promise<void> {
    await this.#rows.commit({
      put: rows.filter(([key]) => !key.startsWith("n/")),
      add: rows.filter(([key]) => key.startsWith("n/")).map(([key, value]) => [key, Number(value)]),
    });
    for (const [key, value] of rows) if (JOURNAL.test(key)) this.#journals.set(key, value);
  }

  /** The rows of a prefix, for who looks at them from outside. */
  rows(prefix: string): Promise<Row[]> {
    return this.#rows.scan({ prefix, limit: 1_000_000 });
  }

  /** Whether others go on with what it was at work on. */
  isGone(process: SimulatedProcess): boolean {
    return this.#gone.has(process);
  }

  /** Whether the execution of that number is with another process. */
  isWithAnother(process: SimulatedProcess, execution: number): boolean {
    return (this.#owners.get(openExecutionKey(execution)) ?? process) !== process;
  }

  /** Cuts a process off for a while. */
  cut(process: SimulatedProcess, milliseconds: number): void {
    const { name } = process;
    this.world.trace(`${name} is cut off from the database`);
    const back = process.fault();
    this.#away.set(name, back);
    for (const [shown, owner] of this.#sessions) if (owner === process) this.#sessions.delete(shown);
    this.world.after(milliseconds, () => {
      if (this.#away.get(name) !== back) return;
      this.world.trace(`${name} is back`);
      back();
      this.#away.delete(name);
    });
  }

  heal(): void {
    for (const back of this.#away.values()) back();
    this.#away.clear();
    this.network = { slow: 0, refused: 0, unanswered: 0, unheard: 0 };
  }

  /** Settles as the process hears of it: never when it is dead. */
  ask(process: SimulatedProcess, asked: Asked): Promise<Answers> {
    const { random, name } = process;
    const { network } = this;
    return new Promise((resolve, reject) => {
      const { happens, hears } = process.enter();
      const isWrite = asked.kind === "commit";
      const fail = (mayHaveHappened: boolean) => {
        this.failed = this.world.now;
        const told = isWrite ? process.fault() : () => {};
        process.after(random.next() * PATIENCE_MS, () => {
          process.trace(`${asked.kind} is not answered`);
          told();
          reject(new Lost(mayHaveHappened));
        });
      };
      const way = () => random.next() * (random.chance(network.slow) ? 2_000 : random.chance(SOME_LATE) ? LATE_MS : 3);
      const there = way();
      const back = way();
      if (happens && (this.#away.has(name) || random.chance(network.refused))) return void fail(false);
      if (!happens) return;
      const loses = random.chance(network.unanswered);
      this.world.after(there, async () => {
        // A cut on the way there: it never arrives.
        if (this.#away.has(name)) return void fail(isWrite);
        process.trace(describe(asked));
        const answers = await this.world.hold(this.#answer(asked));
        if (this.#taken !== null && asked.kind === "scan" && asked.ranges.some(({ prefix }) => JOURNAL.test(prefix))) {
          const taken = this.#taken;
          this.#taken = null;
          this.world.after(taken.random.next() * 4, () => taken.thaw());
        }
        if (isWrite)
          this.#look(
            process,
            asked.commits.filter((_, index) => typeof answers[index] === "number"),
          );
        if (!hears) return;
        if (loses) return void fail(isWrite);
        process.after(back, () => {
          if (this.#away.has(name)) fail(isWrite);
          else resolve(answers);
        });
      });
    });
  }

  async #answer(asked: Asked): Promise<Answers> {
    switch (asked.kind) {
      case "commit":
        return (await Promise.allSettled(asked.commits.map((commit) => this.#rows.commit(commit)))).map((result) =>
          result.status === "fulfilled" ? result.value : (result.reason as Error),
        );
      case "get":
        return Promise.all(asked.lists.map(({ keys, longest }) => this.#rows.getMany(keys, longest)));
      case "scan":
        return Promise.all(asked.ranges.map((range) => this.#rows.scan(range)));
      case "tail":
        return Promise.all(asked.tails.map((tail) => this.#rows.tail(tail)));
    }
  }

  /** What no commit may do, whoever makes it: change what a journal says, and write a heartbeat of one that was taken for gone. */
  #look(process: SimulatedProcess, commits: readonly Commit[]): void {
    const { world } = this;
    const put = commits.flatMap((commit) => commit.put ?? []);
    const gone = commits.flatMap((commit) => commit.delete ?? []);
    for (const [key, value] of put) {
      if (JOURNAL.test(key)) {
        const before = this.#journals.get(key) ?? value;
        world.require(before === value, () => `${process.name} changes the journal at ${key}: ${before} to ${value}`);
        this.#journals.set(key, value);
      } else if (key.startsWith(OPEN_EXECUTIONS)) this.#owners.set(key, process);
      else if (key.startsWith(PROCESSES)) {
        world.require(
          this.#leases.get(key) !== null,
          () => `${process.name} was taken for gone, and is back as ${key}`,
        );
        this.#leases.set(key, process);
        this.#gone.delete(process);
      }
    }
    for (const key of gone) {
      const owner = this.#leases.get(key);
      if (owner == null || owner === process) continue;
      this.#leases.set(key, null);
      this.#gone.add(owner);
      if (!owner.isLeft) continue;
      // It goes on at once, or while others read what it has left, at the latest after a second.
      if (owner.random.chance(0.5)) this.#taken = owner;
      world.after(this.#taken === owner ? 1_000 : owner.random.below(40), () => owner.thaw());
    }
  }

  listen(process: SimulatedProcess, heard: (notice: string) => void): void {
    this.#listening.set(process, heard);
  }

  /** To all, the sender too. Each hears it at a time of its own, or not at all. */
  notify(process: SimulatedProcess, notice: string): void {
    if (!process.isAlive || this.#away.has(process.name)) return;
    for (const [listener, heard] of this.#listening) {
      if (!listener.isAlive) this.#listening.delete(listener);
      else if (!process.random.chance(this.network.unheard))
        listener.after(process.random.next() * (process.random.chance(0.1) ? 500 : 5), () => {
          if (!this.#away.has(listener.name)) heard(notice);
        });
    }
  }

  /** @returns whether others can see it */
  show(process: SimulatedProcess, name: string): boolean {
    if (this.#away.has(process.name)) return false;
    this.#sessions.set(name, process);
    return true;
  }

  shown(names: readonly string[]): ReadonlySet<string> {
    return new Set(names.filter((name) => this.#sessions.has(name)));
  }

  /** The server sees soon that the connections of a process have ended. */
  forget(process: SimulatedProcess): void {
    this.world.after(this.world.random(`end of ${process.name}`).next() * SESSION_ENDS_MS, () => {
      for (const [name, owner] of this.#sessions) if (owner === process) this.#sessions.delete(name);
    });
  }
}

const describe = (asked: Asked): string => {
  switch (asked.kind) {
    case "commit":
      return `commit ${asked.commits.map(({ put = [], delete: gone = [], add = [] }) => [...put.map(([key]) => key), ...gone.map((key) => `-${key}`), ...add.map(([key]) => `+${key}`)].join(" ")).join(" | ")}`;
    case "get":
      return `get ${asked.lists.flatMap(({ keys }) => keys).join(" ")}`;
    case "scan":
      return `scan ${asked.ranges.map(({ prefix }) => prefix).join(" ")}`;
    case "tail":
      return `tail ${asked.tails.map(({ prefix }) => prefix).join(" ")}`;
  }
};
