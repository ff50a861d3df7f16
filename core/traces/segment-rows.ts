/** The rows of segments, which are written in one commit and removed in one. */
import { foreignKey, secondKey, segmentDataKey, segmentFromKey, segmentKey, TRACE_COUNTERS } from "../storage/keys.ts";
import type { Commit, Row } from "../storage/store.ts";
import type { Segment, SegmentHead } from "./segment.ts";

/** A head that was read from the store, with the revision of its row. */
interface KnownHead {
  readonly name: string;
  readonly head: SegmentHead;
  readonly revision: number;
}

export async function commitOfWrites(segments: readonly Segment[]): Promise<Commit> {
  const put: [string, string][] = [];
  for (const { name, head, text } of segments) {
    put.push([segmentKey(name), JSON.stringify(head)], [segmentDataKey(name), await text]);
    for (const key of placeKeys(name, head)) put.push([key, "1"]);
  }
  return { put, add: counterChanges(segments, 1) };
}

/** The commit that removes segments. Of several processes that remove the same ones, only one succeeds. */
export function commitOfRemovals(segments: readonly KnownHead[]): Commit {
  const gone = segments.flatMap(({ name, head }) => [segmentKey(name), segmentDataKey(name), ...placeKeys(name, head)]);
  const expect = segments.map(({ name, revision }): [string, number] => [segmentKey(name), revision]);
  return { delete: gone, add: counterChanges(segments, -1), expect };
}

const EMPTY_HEAD: SegmentHead = {
  traces: 0,
  spans: 0,
  size: 0,
  from: 0,
  entities: [],
  users: [],
  completed: false,
  failed: false,
  seconds: [],
  foreign: [],
};

/** Parses the head of a segment. An unreadable row becomes an empty head, which lists skip and retention removes. */
export function parseHead({ key, value, revision }: Row): KnownHead {
  const name = segmentFromKey(key);
  try {
    return { name, head: { ...EMPTY_HEAD, ...(JSON.parse(value) as object) }, revision };
  } catch {
    return { name, head: EMPTY_HEAD, revision };
  }
}

const placeKeys = (name: string, { seconds, foreign }: SegmentHead): string[] => [
  ...seconds.map((second) => secondKey(second, name)),
  ...foreign.map((traceId) => foreignKey(traceId, name)),
];

function counterChanges(segments: readonly { head: SegmentHead }[], sign: 1 | -1): [string, number][] {
  const sum = { traces: 0, spans: 0, size: 0 };
  for (const { head } of segments) {
    sum.traces += head.traces;
    sum.spans += head.spans;
    sum.size += head.size;
  }
  return [
    [TRACE_COUNTERS.traces, sign * sum.traces],
    [TRACE_COUNTERS.spans, sign * sum.spans],
    [TRACE_COUNTERS.size, sign * sum.size],
  ];
}
