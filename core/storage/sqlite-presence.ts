/** Whether the file is still where it was: SQLite writes on into one that was moved away, and its log stays behind. */
import { stat } from "node:fs/promises";

/** Milliseconds between two looks. */
const PAUSE = 1_000;

/** @returns rejects with a driver's error when the file is not there any more; looks at most once a second unless `now` */
export async function createPresence(file: string): Promise<(now?: boolean) => Promise<void>> {
  const { ino, dev } = await stat(file);
  let looked = performance.now();
  let gone = false;
  return async (now = false) => {
    if (!now && !gone && performance.now() - looked < PAUSE) return;
    looked = performance.now();
    const found = await stat(file).catch(() => undefined);
    gone = found?.ino !== ino || found.dev !== dev;
    if (gone)
      throw Object.assign(new Error(`${file} is not the file that was opened`), { code: "SQLITE_READONLY_DBMOVED" });
  };
}
