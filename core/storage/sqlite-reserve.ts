/**
 * Room on the disk that is kept for deletions, as a file beside that of SQLite: who deletes on a full disk wants to make room, and SQLite
 * needs some for its log first. The file is given up for that, and written anew as soon as the disk has room for it. Until then only
 * deletions are written, so that nothing else takes the room.
 */
import { randomBytes } from "node:crypto";
import { open, rm, stat, statfs } from "node:fs/promises";

/** What one deletion may write to the log: it writes every page that it changes or leaves. */
const ROOM_FOR_DELETIONS = 8 * 1024 * 1024;
/** Written again and again. Random, since some file systems keep no room for what they can compress. */
const CHUNK = 1024 * 1024;

export interface SqliteReserve {
  /** Makes it as large as it should be, if the disk has room. Never rejects. */
  keep(): Promise<void>;
  /** Whether it was given up, and is not back. */
  isSpent(): boolean;
  /** Gives it up. There may be none. Never rejects. */
  spend(): Promise<void>;
}

/** @param file of SQLite */
export function createSqliteReserve(file: string): SqliteReserve {
  const path = `${file}-reserve`;
  let isSpent = false;
  let turn = Promise.resolve();

  const inTurn = (work: () => Promise<void>): Promise<void> => {
    turn = turn.then(work).catch(() => {});
    return turn;
  };

  /** When the disk fills up, the log may have to be written into the file, which grows by as much, before it can begin anew. */
  const wanted = async (): Promise<number> => ROOM_FOR_DELETIONS + (await sizeOf(`${file}-wal`));

  async function grow(from: number, to: number): Promise<void> {
    const { bavail, bsize } = await statfs(file);
    if (bavail * bsize < to - from) return;
    const handle = await open(path, "a", 0o600);
    try {
      const chunk = randomBytes(CHUNK);
      for (let left = to - from; left > 0; left -= CHUNK) await handle.appendFile(chunk.subarray(0, left));
      isSpent = false;
    } catch {
      // Others have taken the room meanwhile.
      await handle.truncate(from);
    } finally {
      await handle.close();
    }
  }

  return {
    keep: () =>
      inTurn(async () => {
        const [kept, needed] = await Promise.all([sizeOf(path), wanted()]);
        if (kept < needed) await grow(kept, needed);
      }),
    isSpent: () => isSpent,
    spend: () =>
      inTurn(async () => {
        if ((await sizeOf(path)) === 0) return;
        await rm(path);
        isSpent = true;
      }),
  };
}

const sizeOf = (path: string): Promise<number> =>
  stat(path).then(
    ({ size }) => size,
    () => 0,
  );
