/** Stands in for the store of postgres://: the same interface over the simulated database. */
import { CommitConflict, unavailable } from "../../../core/lib/errors.ts";
import { Interval } from "../../../core/lib/interval.ts";
import { createBatch } from "../../../core/storage/batch.ts";
import { checkCommit, checkKey, checkRange, checkTail } from "../../../core/storage/keys.ts";
import { ANNOUNCEMENT_INTERVAL_MS, WakeTopics } from "../../../core/storage/postgres-notices.ts";
import type { Commit, Joined, Range, Row, Store, Tail } from "../../../core/storage/store.ts";
import type { Answers, Asked } from "../database.ts";

const LIMIT = { limit: 1_000 };

async function ask(asked: Asked): Promise<Answers> {
  try {
    // Errors of the world outside are of other classes.
    return (await simulated.database.ask(simulated, asked)).map((answer) =>
      answer instanceof Error && "keys" in answer ? new CommitConflict(answer.keys as string[]) : answer,
    );
  } catch (error) {
    throw unavailable(`storage is unavailable: ${(error as Error).message}`);
  }
}

export async function openPostgresStore(): Promise<Store> {
  const { database } = simulated;
  const commits = createBatch<Commit, number>(
    (list) => ask({ kind: "commit", commits: list }) as Promise<number[]>,
    LIMIT,
  );
  const gets = createBatch<{ keys: readonly string[]; longest: number | undefined }, (Row | undefined)[]>(
    (lists) => ask({ kind: "get", lists }) as Promise<Row[][]>,
    LIMIT,
  );
  const scans = createBatch<Range, Row[]>((ranges) => ask({ kind: "scan", ranges }) as Promise<Row[][]>, LIMIT);
  const tails = createBatch<Tail, Joined | null>(
    (asked) => ask({ kind: "tail", tails: asked }) as Promise<Joined[]>,
    LIMIT,
  );
  const topics = new WakeTopics(async (notice) => database.notify(simulated, notice));
  database.listen(simulated, (notice) => topics.heard(notice));
  const announcements = new Interval(
    ANNOUNCEMENT_INTERVAL_MS,
    async () => topics.announce(),
    () => undefined,
  );
  announcements.start();
  topics.announce(true);
  return {
    kind: "postgres",
    get: async (key) => {
      checkKey(key);
      return (await gets({ keys: [key], longest: undefined }))[0];
    },
    getMany: async (keys, longest) => {
      for (const key of keys) checkKey(key);
      return keys.length === 0 ? [] : gets({ keys, longest });
    },
    scan: async (range) => {
      checkRange(range);
      return range.limit === 0 ? [] : scans(range);
    },
    tail: async (tail) => {
      checkTail(tail);
      return tails(tail);
    },
    commit: async (commit) => {
      checkCommit(commit);
      return commits(commit);
    },
    presence: {
      show: async (name) => database.show(simulated, name),
      shown: async (names) => database.shown(names),
    },
    wake: (topic) => topics.wake(topic),
    watch: (topic, woken) => topics.watch(topic, woken),
    watched: (topic, listener) => topics.watched(topic, listener),
    problem: async () => null,
    close: async () => {
      await announcements.stop();
      await Promise.all([commits.idle(), gets.idle(), scans.idle(), tails.idle()]);
    },
  };
}
