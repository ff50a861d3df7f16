/**
 * A process whose clients use a SQLite file, and which kills itself (SIGKILL) around a statement. It prints the beginning and the end of
 * every operation, one JSON text a line. Its argument is a `Life`.
 */
import { writeSync } from "node:fs";
import { createRequire } from "node:module";
import { pino } from "pino";
import { randomOf } from "../fuzz/random.ts";
import { crowd } from "./cases.ts";
import { createNumbers, play } from "./clients.ts";
import { openSqliteStore } from "./engines.ts";
import { History } from "./history.ts";

/** `before` it reaches SQLite, `during` its work in SQLite's thread, `after` it is done and before anybody knows. */
export type Moment = "before" | "during" | "after";

export interface Life {
  readonly file: string;
  readonly seed: number;
  readonly prefix: string;
  /** The process ends at this write statement, counted from the first commit; never, where there are fewer. */
  readonly statement: number;
  readonly moment: Moment;
}

const life = JSON.parse(process.argv[2]!) as Life;
/** Write statements since the file is open. */
let statements = Number.NEGATIVE_INFINITY;
// First, since a connection keeps the driver's method that it finds.
dieAt(life);
const store = await openSqliteStore({ file: life.file, logger: pino({ level: "silent" }) });
statements = 0;
const history = new History((operation) => writeSync(1, `${JSON.stringify(operation)}\n`));
const random = randomOf(life.seed);
const numbers = createNumbers(0, 2);
await play({ history, numbers, random, prefix: life.prefix, calls: 8, stores: crowd([store], random) });
await store.close();

function dieAt({ statement, moment }: Life): void {
  const sqlite3 = createRequire(createRequire(import.meta.url).resolve("@keyv/sqlite"))("sqlite3");
  const { prototype } = sqlite3.Database as { prototype: { all(...given: unknown[]): unknown } };
  const all = prototype.all;
  const die = () => process.kill(process.pid, "SIGKILL");
  prototype.all = function (sql, ...given) {
    const due = !/^\s*(SELECT|WITH|PRAGMA)/.test(String(sql)) && statements++ === statement;
    if (!due) return all.call(this, sql, ...given);
    if (moment === "before") die();
    const callback = given.pop() as (...results: unknown[]) => void;
    const result = all.call(this, sql, ...given, moment === "after" ? die : callback);
    // Time for SQLite's thread to begin, by the seed.
    for (let spins = random.below(200_000); moment === "during" && spins >= 0; spins--) if (spins === 0) die();
    return result;
  };
}
