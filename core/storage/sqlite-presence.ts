/** Checks that the file is still in its place: SQLite goes on writing into a file that was moved away, and its log stays behind. */
import { stat } from "node:fs/promises";

const CHECK_INTERVAL_MS = 1_000;

/** @returns a check that rejects like the driver when the file is gone; it looks at most once a second, unless `now` is true */
export async function createPresence(file: string): Promise<(now?: boolean) => Promise<void>> {
  const { ino, dev } = await stat(file);
  let checkedAt = performance.now();
  let gone = false;
  return async (now = false) => {
    if (!now && !gone && performance.now() - checkedAt < CHECK_INTERVAL_MS) return;
    checkedAt = performance.now();
    const found = await stat(file).catch(() => undefined);
    gone = found?.ino !== ino || found.dev !== dev;
    if (gone)
      throw Object.assign(new Error(`${file} is not the file that was opened`), { code: "SQLITE_READONLY_DBMOVED" });
  };
}
