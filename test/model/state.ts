/** A store as simple as can be: what each call does to its rows, and what it would be told. Every version of a row has a value of its own. */
import type { Call, Operation } from "./history.ts";

/** Values by key. */
export type State = ReadonlyMap<string, string>;

type CommitCall = Extract<Call, { kind: "commit" }>;

/** The keys whose expectation is false. */
export const falseIn = (state: State, { expected }: CommitCall): string[] =>
  expected.filter(([key, value]) => (state.get(key) ?? null) !== value).map(([key]) => key);

/** The rows after the commit. */
export function applied(state: State, { commit }: CommitCall): State {
  const { clear = [], delete: removed = [], put = [], add = [] } = commit;
  const rows = new Map(state);
  for (const prefix of clear) for (const key of state.keys()) if (key.startsWith(prefix)) rows.delete(key);
  for (const key of removed) rows.delete(key);
  for (const [key, value] of put) rows.set(key, value);
  for (const [key, delta] of add) rows.set(key, String(Number(rows.get(key) ?? 0) + delta));
  return rows;
}

/** Whether an operation that changed nothing would be told in this state what it was told. */
export function explains(state: State, { call, reply }: Operation): boolean {
  if (reply === null || reply.kind === "unknown") return true;
  switch (call.kind) {
    case "commit": {
      const broken = falseIn(state, call);
      return reply.kind === "conflict" && broken.length > 0 && sameSet(broken, reply.keys);
    }
    case "get":
      return reply.kind === "rows" && call.keys.every((key, index) => state.get(key) === reply.rows[index]?.value);
    case "scan": {
      if (reply.kind !== "rows") return false;
      const { prefix, after = "", before = "\x7f", reverse = false, limit, skip = 0 } = call.range;
      const keys = keysBetween(state, prefix, after, before);
      const wanted = (reverse ? keys.reverse() : keys).slice(skip, skip + limit);
      return (
        wanted.length === reply.rows.length &&
        wanted.every((key, index) => key === reply.rows[index]?.key && state.get(key) === reply.rows[index]?.value)
      );
    }
    case "tail": {
      if (reply.kind !== "joined") return false;
      const { prefix, after = "", before = "\x7f", limit, otherKey } = call.tail;
      const keys = keysBetween(state, prefix, after, before).slice(-limit);
      return (
        reply.text === keys.map((key) => state.get(key)).join(",") &&
        reply.first === (keys.length < limit ? null : keys[0]) &&
        reply.other?.value === state.get(otherKey)
      );
    }
  }
}

/** The versions of rows that have to be there at the operation's place. */
export function versionsSeen({ call, reply }: Operation): (readonly [key: string, value: string])[] {
  if (reply?.kind === "rows") return reply.rows.flatMap((row) => (row === null ? [] : [[row.key, row.value] as const]));
  if (reply?.kind === "joined") return reply.other === null ? [] : [[reply.other.key, reply.other.value]];
  if (reply?.kind !== "committed" || call.kind !== "commit") return [];
  return call.expected.flatMap(([key, value]) => (value === null ? [] : [[key, value] as const]));
}

const sameSet = (one: readonly string[], other: readonly string[]): boolean =>
  String([...new Set(one)].sort()) === String([...new Set(other)].sort());

const keysBetween = (state: State, prefix: string, after: string, before: string): string[] =>
  [...state.keys()].filter((key) => key.startsWith(prefix) && key > after && key < before).sort();
