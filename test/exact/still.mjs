// Preloaded into a process that is measured exactly: its time goes by, and its timers fire, only when it is told so, and what it asks
// of its databases is counted in their drivers. `globalThis.still` is for the program that runs in it.
import { createRequire, syncBuiltinESMExports } from "node:module";
import timers from "node:timers";
import promises from "node:timers/promises";
import { promisify } from "node:util";
import { isMainThread } from "node:worker_threads";
import zlib from "node:zlib";

const require = createRequire(import.meta.url);
const { setImmediate: nextTurn, Date: SystemDate } = globalThis;
/** Turns of the event loop without anything under way, after which the process is idle. */
const QUIET_TURNS = 10;

const BEGINNING = SystemDate.UTC(2026, 0, 1);
const HOUR = 3_600_000;
/** Milliseconds since then. */
let time = 0;
const waiting = new Set();

class Timer {
  constructor(callback, delay, args, repeats) {
    this.callback = callback;
    this.delay = Math.max(1, Number(delay) || 1);
    this.args = args;
    this.repeats = repeats;
    this.refresh();
  }
  refresh() {
    this.due = time + this.delay;
    waiting.add(this);
    return this;
  }
  close() {
    waiting.delete(this);
    return this;
  }
  fire() {
    if (this.repeats) this.refresh();
    else waiting.delete(this);
    this.callback(...this.args);
  }
  ref() {
    return this;
  }
  unref() {
    return this;
  }
  hasRef() {
    return true;
  }
}

/** What is due at once is not worth a clock. */
function start(callback, delay, ...args) {
  const timer = new Timer(callback, delay, args, false);
  if (timer.delay === 1) nextTurn(() => waiting.has(timer) && timer.fire());
  return timer;
}

function sleep(delay, value, { signal } = {}) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const timer = start(resolve, delay, value);
    signal?.addEventListener("abort", () => {
      timer.close();
      reject(signal.reason);
    });
  });
}

const stop = (timer) => timer?.close?.();

/** Of the drivers, since the start. */
const counted = { statements: 0, commits: 0, bytes: 0, roundTrips: 0 };
/** Statements of SQLite that are not answered yet, and texts that are being deflated. */
let inSqlite = 0;
let deflating = 0;
const sqlite = new Set();
const postgres = new Set();

const isBusy = () => inSqlite + deflating > 0 || [...postgres].some(({ unanswered }) => unanswered > 0);

const WRITES = /^\s*(?:INSERT|UPDATE|DELETE|REPLACE)/i;

function countSqlite() {
  const { Database } = require("sqlite3");
  const { all } = Database.prototype;
  Database.prototype.all = function (sql, ...rest) {
    sqlite.add(this);
    counted.statements += 1;
    if (/^\s*BEGIN/i.test(sql)) this.isWithin = true;
    if (WRITES.test(sql)) for (const value of rest.slice(0, -1)) counted.bytes += Buffer.byteLength(String(value));
    if (/^\s*COMMIT/i.test(sql) || (WRITES.test(sql) && !this.isWithin)) counted.commits += 1;
    if (/^\s*(?:COMMIT|ROLLBACK)/i.test(sql)) this.isWithin = false;
    const done = rest.pop();
    inSqlite += 1;
    return all.call(this, sql, ...rest, (...result) => {
      inSqlite -= 1;
      done(...result);
    });
  };
  const { close } = Database.prototype;
  Database.prototype.close = function (...args) {
    sqlite.delete(this);
    return close.apply(this, args);
  };
  /** Rows that the statements of all connections have changed. */
  return async () => {
    const each = [...sqlite].map((database) => promisify(all).call(database, "SELECT total_changes() AS changes"));
    return (await Promise.all(each)).reduce((sum, [{ changes }]) => sum + changes, 0);
  };
}

/** How small a text gets depends on the ids in it and on the processor: here it is a thirtieth, as for the traces of the row `init`. */
function deflateExactly() {
  zlib.deflateRaw = (text, _options, done) => {
    deflating += 1;
    nextTurn(() => {
      deflating -= 1;
      done(null, Buffer.alloc(Math.ceil(text.length / 30)));
    });
  };
}

function countPostgres() {
  const { Connection } = require("pg");
  const { emit } = Connection.prototype;
  // Each of these is answered by a readyForQuery.
  for (const name of ["query", "sync"]) {
    const send = Connection.prototype[name];
    Connection.prototype[name] = function (...args) {
      this.unanswered = (this.unanswered ?? 0) + 1;
      return send.apply(this, args);
    };
  }
  Connection.prototype.emit = function (name, ...args) {
    postgres.add(this);
    if (name === "commandComplete") counted.statements += 1;
    if (name === "readyForQuery") counted.roundTrips += 1;
    if (name === "readyForQuery" && this.unanswered > 0) this.unanswered -= 1;
    if (name === "end") this.unanswered = 0;
    return emit.call(this, name, ...args);
  };
  /** Bytes that were sent to the server. */
  return () => [...postgres].reduce((sum, { stream }) => sum + (stream.bytesWritten ?? 0), 0);
}

if (isMainThread) {
  // Stored, and not always of the same length.
  Object.defineProperty(process, "pid", { value: 12_345 });
  globalThis.Date = class extends SystemDate {
    constructor(...given) {
      if (given.length === 0) super(BEGINNING + time);
      else super(...given);
    }
    static now() {
      return BEGINNING + time;
    }
  };
  performance.now = () => time;
  process.hrtime.bigint = () => BigInt(Math.round(time * 1e6));
  const fake = {
    setTimeout: start,
    clearTimeout: stop,
    setInterval: (callback, delay, ...args) => new Timer(callback, delay, args, true),
    clearInterval: stop,
  };
  start[promisify.custom] = sleep;
  Object.assign(globalThis, fake);
  Object.assign(timers, fake);
  promises.setTimeout = sleep;
  const rows = countSqlite();
  const sent = countPostgres();
  deflateExactly();
  syncBuiltinESMExports();

  const fireDue = () => {
    for (const timer of [...waiting].sort((one, other) => one.due - other.due))
      if (timer.due <= time && waiting.has(timer)) timer.fire();
  };
  const idle = async () => {
    for (let turns = 0; turns < QUIET_TURNS; turns = isBusy() ? 0 : turns + 1)
      await new Promise((resolve) => nextTurn(resolve));
  };
  globalThis.still = {
    /** Goes to the next full hour. */
    jump() {
      time = (Math.floor(time / HOUR) + 1) * HOUR;
      fireDue();
    },
    idle,
    /** Time goes by, ten milliseconds at once. */
    async advance(milliseconds) {
      for (let past = 0; past < milliseconds; past += 10) {
        time += 10;
        const before = counted.statements;
        fireDue();
        if (counted.statements > before || isBusy()) await idle();
        else await new Promise((resolve) => nextTurn(resolve));
      }
      await idle();
    },
    async counts() {
      return { ...counted, bytes: counted.bytes + sent(), rows: await rows() };
    },
  };
}
