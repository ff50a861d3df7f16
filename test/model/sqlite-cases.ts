/** Cases of SQLite: a process that is killed in its work, or one that closes its file and opens it again. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { caseSeed } from "../fuzz/random.ts";
import { silent } from "../support/providers.ts";
import { linesOf, strayValues } from "../support/storage.ts";
import type { Built } from "./built.ts";
import { crowd, judged, playNumbers, type Scene, type Seen, sceneOf } from "./cases.ts";
import { createNumbers, play } from "./clients.ts";
import type { Operation } from "./history.ts";
import type { Life, Moment } from "./sqlite-process.ts";

/** Most lives have more write statements. */
const STATEMENTS = 25;
/** A limit of the size of files under which some lives end: the log of a life is longer. In KiB, or in half of them: shells differ. */
const SMALL_KIB = 96;

/** Two lives of a process with one file: the first ends by itself, by a signal or on a full disk. Nobody else gets in. */
export async function playSqlite({ engines, sqliteProcess }: Built, folder: string, seed: number, seen: Seen) {
  const scene = sceneOf(seed, seen);
  const { random } = scene;
  const file = join(folder, `${seed}.db`);
  const open = () => engines.openSqliteStore({ file, logger: silent });

  if (random.chance(0.3)) {
    const life = { file, seed: caseSeed(seed, 1), prefix: scene.prefix };
    const moment = random.pick<Moment>(["before", "during", "after"]);
    await liveElsewhere(scene, sqliteProcess, { ...life, statement: random.below(STATEMENTS), moment });
  } else {
    const first = await open();
    await play({ ...scene, numbers: createNumbers(0, 2), calls: 8, stores: crowd([first], random) });
    await first.close();
  }

  const store = await open();
  if (random.chance(0.06) && (await open().catch(() => null)) !== null) return "a file that is in use was opened again";
  await play({ ...scene, numbers: createNumbers(1, 2), calls: 8, stores: crowd([store], random) });
  const numbers = await playNumbers(engines, [store], seed);
  const found = (await judged(scene, store)) ?? numbers;
  await store.close();
  const strays = await strayValues(file);
  for (const ending of ["", "-wal", "-shm", ".lock"]) await rm(file + ending, { force: true });
  return found ?? (strays.length > 0 ? `large values without a row, or the reverse: ${JSON.stringify(strays)}` : null);
}

/** The operations of another process become part of the history as they are printed. */
async function liveElsewhere({ history, random }: Scene, program: string, life: Life): Promise<void> {
  const limit = random.chance(0.25) ? SMALL_KIB : "unlimited";
  const script = `ulimit -f ${limit}; exec "$@"`;
  const child = spawn("/bin/sh", ["-c", script, "sh", process.execPath, program, JSON.stringify(life)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  const begun = new Map<number, Operation>();
  for await (const line of linesOf(child.stdout)) {
    const { id, call, reply } = JSON.parse(line) as Operation;
    const operation = begun.get(id);
    if (operation === undefined) begun.set(id, history.begin(call));
    else if (reply !== null) history.end(operation, reply);
  }
  const [code, signal] = await exited;
  if (code !== 0 && signal !== "SIGKILL")
    throw new Error(`the process of seed ${life.seed} ended with ${code ?? signal}`);
}
