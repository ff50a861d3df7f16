/** One case: clients that a seed makes work on stores, something happens to these meanwhile, and the oracle judges what they were told. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Store } from "../../core/storage/store.ts";
import { type Random, randomOf } from "../fuzz/random.ts";
import { createNumbers, play } from "./clients.ts";
import { History, record } from "./history.ts";
import { complaint } from "./oracle.ts";

/** What is tested: the engines of the source, or of a copy in which something is missing. */
export type Engines = typeof import("./engines.ts");

export interface Scene {
  readonly random: Random;
  readonly history: History;
  /** What the keys of this case begin with. */
  readonly prefix: string;
  readonly seen: Seen;
}

/** How often something was met in all cases, by the name of a reply, `unanswered`, or a fault. */
export type Seen = Record<string, number>;

export const sceneOf = (seed: number, seen: Seen): Scene => ({
  random: randomOf(seed),
  history: new History(),
  prefix: `c${seed}/`,
  seen,
});

/** The cases of one engine. */
export interface Cases {
  /** What is wrong with what the engine did in the case of this seed, or null. */
  play(seed: number): Promise<string | null>;
  readonly seen: Readonly<Seen>;
  close(): Promise<void>;
}

/** Each of three to six clients uses one of the stores. */
export const crowd = (stores: readonly Store[], random: Random): Store[] =>
  Array.from({ length: 3 + random.below(4) }, (_, index) => stores[index] ?? random.pick(stores));

/** What is there in the end, read in every way. */
export async function judged({ history, prefix, seen }: Scene, store: Store): Promise<string | null> {
  for (const { reply } of history.operations) {
    const name = reply?.kind ?? "unanswered";
    seen[name] = (seen[name] ?? 0) + 1;
  }
  const range = { prefix, limit: 100 };
  for (let tries = 1; ; tries++) {
    const { kind } = await record(history, store, { kind: "scan", range });
    if (kind === "rows") break;
    if (tries === 100) return "the store does not recover";
    await sleep(20);
  }
  const keys = history.operations.flatMap(({ call }) => (call.kind === "get" ? call.keys : []));
  await record(history, store, { kind: "get", keys: [...new Set(keys)] });
  await record(history, store, { kind: "tail", tail: { ...range, otherKey: `${prefix}b` } });
  return complaint(history.operations);
}

export async function playMemory({ createMemoryStore }: Engines, seed: number, seen: Seen): Promise<string | null> {
  const scene = sceneOf(seed, seen);
  const store = createMemoryStore();
  await play({ ...scene, numbers: createNumbers(), calls: 8, stores: crowd([store], scene.random) });
  return judged(scene, store);
}

const BLOCK = 4;

/** Sequences of several stores, or of one, never give out a number twice. The blocks are small, so that they often end at once. */
export async function playNumbers({ createSequence }: Engines, stores: readonly Store[], seed: number) {
  const given: number[] = [];
  const take = async (store: Store): Promise<void> => {
    const sequence = await createSequence(store, `s${seed}/next`, [`s${seed}/used/`], BLOCK);
    for (let count = 0; count < 3 * BLOCK; count++) given.push(await sequence.next());
  };
  const taken = await Promise.allSettled([...stores, stores[0]!].map(take));
  const failed = taken.find((each) => each.status === "rejected");
  if (failed !== undefined) return `a number could not be had: ${(failed as PromiseRejectedResult).reason}`;
  const twice = given.filter((number, index) => given.indexOf(number) !== index);
  return twice.length === 0 ? null : `numbers were given out twice: ${twice}`;
}
