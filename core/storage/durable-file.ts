/** Files that are there whole or not at all, also after a power cut: written beside, synced, renamed. */
import { open } from "node:fs/promises";
import { dirname } from "node:path";

/** Waits until the file, or the folder with its names, is on disk. */
async function sync(path: string): Promise<void> {
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** @param rename gives the file that is at `path` its name, in the same folder. It happens once the content is on disk */
export async function publish(path: string, rename: () => Promise<void>): Promise<void> {
  await sync(path);
  await rename();
  await sync(dirname(path));
}
