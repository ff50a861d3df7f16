/**
 * Decides whether a history can be explained: whether there is one order of all operations, each between its beginning and its end, in
 * which a store as simple as can be (state.ts) would have said the same. A commit whose outcome nobody was told may be anywhere after its
 * beginning, or nowhere; one that has failed is nowhere. What that covers: acknowledged commits are there, wholly; refused ones had a false expectation and left
 * nothing; counters are sums; reads see what was acknowledged before them, and one moment each. A row that a commit expects and does not
 * write is a fence: nobody who has seen it changed sees the commit happen afterwards.
 */
import type { Operation } from "./history.ts";
import { applied, explains, falseIn, type State, versionsSeen } from "./state.ts";

/** Of a history that cannot be explained, all orders are tried. It has never come near this bound. */
const MAX_STEPS = 300_000;

/** What is wrong with the history, or null. */
export function complaint(operations: readonly Operation[]): string | null {
  return refusalComplaint(operations) ?? revisionsComplaint(operations) ?? orderComplaint(operations);
}

/** Nothing that the clients ask for is a mistake. */
function refusalComplaint(operations: readonly Operation[]): string | null {
  const refused = operations.find(({ reply }) => reply?.kind === "refused");
  return refused === undefined ? null : `a call was refused: ${JSON.stringify(refused)}`;
}

/** Two versions of a row never have one revision, and a version that is read twice has not got another one. */
function revisionsComplaint(operations: readonly Operation[]): string | null {
  const valueAt = new Map<string, string>();
  const revisionAt = new Map<string, string>();
  const see = (id: number, key: string, value: string, revision: number): string | null => {
    for (const [known, name, found] of [
      [valueAt, `revision ${revision} of ${key}`, value],
      [revisionAt, `${value} in ${key}`, String(revision)],
    ] as const) {
      const before = known.get(name) ?? found;
      if (before !== found) return `operation ${id}: ${name} is ${found}, and was ${before} before`;
      known.set(name, found);
    }
    return null;
  };
  for (const { id, call, reply } of operations) {
    if (reply === null) continue;
    const rows = reply.kind === "rows" ? reply.rows : reply.kind === "joined" ? [reply.other] : [];
    const seen = rows.map((row) => row && see(id, row.key, row.value, row.revision));
    if (reply.kind === "committed" && call.kind === "commit") {
      for (const [key, value] of call.commit.put ?? []) seen.push(see(id, key, value, reply.revision));
    }
    const wrong = seen.find((each) => each !== null);
    if (wrong !== undefined) return wrong;
  }
  return null;
}

const isChange = ({ call, reply }: Operation): boolean =>
  call.kind === "commit" && (reply === null || reply.kind === "committed" || reply.kind === "unknown");
const isKnown = ({ reply }: Operation): boolean =>
  reply !== null && reply.kind !== "unknown" && reply.kind !== "failed";

interface Place {
  readonly state: State;
  /** The operations that are not in the order yet, by their beginnings. */
  readonly left: readonly Operation[];
}

function orderComplaint(operations: readonly Operation[]): string | null {
  const relevant = operations.filter((each) => isKnown(each) || isChange(each));
  const needed = neededVersions(relevant);
  const tried = new Set<string>();
  let furthest: Place | null = null;
  const open: Place[] = [{ state: new Map(), left: relevant }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const place = withoutExplained(next);
    const known = place.left.filter(isKnown);
    if (known.length === 0) return null;
    const name = `${place.left.map(({ id }) => id)} ${[...place.state].sort()}`;
    if (tried.has(name)) continue;
    tried.add(name);
    if (tried.size > MAX_STEPS) return `no order was found in ${MAX_STEPS} steps`;
    if (furthest === null || known.length < furthest.left.filter(isKnown).length) furthest = place;
    for (const after of following(place)) if (!losesNeeded(place, after, needed)) open.push(after);
  }
  return described(furthest!);
}

/** Who was told of a version of a row, or expected it, by key and value. */
type Needed = ReadonlyMap<string, readonly Operation[]>;

function neededVersions(operations: readonly Operation[]): Needed {
  const needed = new Map<string, Operation[]>();
  for (const operation of operations) {
    for (const [key, value] of versionsSeen(operation)) {
      const name = `${key} ${value}`;
      needed.set(name, [...(needed.get(name) ?? []), operation]);
    }
  }
  return needed;
}

/** A version that is gone never comes back: who has to see it can no longer come. */
function losesNeeded(before: Place, after: Place, needed: Needed): boolean {
  for (const [key, value] of before.state) {
    if (after.state.get(key) === value) continue;
    if (needed.get(`${key} ${value}`)?.some((each) => after.left.includes(each))) return true;
  }
  return false;
}

/** The first end: what begins behind it cannot come next. */
const firstEnd = (left: readonly Operation[]): number =>
  left.reduce((end, each) => (isKnown(each) && each.end < end ? each.end : end), Number.POSITIVE_INFINITY);

/** What changes nothing and is right at this place may be put here at once: no other order needs it later. */
function withoutExplained({ state, left }: Place): Place {
  for (let rest = left; ; ) {
    const end = firstEnd(rest);
    const kept = rest.filter((each) => each.begin > end || isChange(each) || !explains(state, each));
    if (kept.length === rest.length) return { state, left: rest };
    rest = kept;
  }
}

/** The places after each commit that can be next, the most likely last: who was answered first, and at the end who was not answered. */
function following({ state, left }: Place): Place[] {
  const end = firstEnd(left);
  const possible = left.filter((each) => each.begin < end && isChange(each));
  possible.sort((a, b) => Number(isKnown(a)) - Number(isKnown(b)) || b.end - a.end || b.begin - a.begin);
  return possible.flatMap((next) => {
    if (next.call.kind !== "commit" || falseIn(state, next.call).length > 0) return [];
    return [{ state: applied(state, next.call), left: left.filter((each) => each !== next) }];
  });
}

function described({ state, left }: Place): string {
  const end = firstEnd(left);
  const next = left.filter((each) => each.begin < end);
  const lines = next.map(({ id, call, begin, end, reply }) => JSON.stringify({ id, begin, end, ...call, reply }));
  return `no order explains the history. When the rows are ${JSON.stringify([...state].sort())}, none of these can come next:\n${lines.join("\n")}`;
}
