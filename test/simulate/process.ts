/**
 * One process of a simulation: its clocks, timers and chance, the files that it sees, and its connection to the database. When it is
 * killed, nothing that it waits for comes.
 */
import * as realCrypto from "node:crypto";
import { readFileSync as readFile, readdirSync as readFolder } from "node:fs";
import zlib from "node:zlib";
import type { Dispatch } from "../../core/http/exchange.ts";
import type { LoadedManifest } from "../../core/manifest/load.ts";
import { type Random, randomOf } from "../fuzz/random.ts";
import { closed } from "./closed.ts";
import type { Database } from "./database.ts";
import { World } from "./world.ts";

/** Manifests that any process has read, by their texts. */
const PARSED = new Map<string, LoadedManifest>();

/** Does something to the world outside, once it is known that this process still lives. */
type Effect = (kind: string, key: string, detail: unknown) => void;

interface ProcessOptions {
  readonly world: World;
  readonly database: Database;
  readonly name: string;
  /** Milliseconds by which its clock is wrong. */
  readonly skew: number;
  readonly files: ReadonlyMap<string, string>;
  readonly effect: Effect;
  readonly rejected: (error: unknown) => void;
}

/** Stands for a timer of Node.js. */
interface Timer {
  ref(): Timer;
  unref(): Timer;
  hasRef(): boolean;
  refresh(): Timer;
  close(): Timer;
  [Symbol.toPrimitive](): number;
  [Symbol.dispose](): void;
  cancel(): void;
}

export class SimulatedProcess {
  /** Until it begins: for what its modules do as they are loaded. */
  world = new World(0);
  database!: Database;
  name!: string;
  random: Random = randomOf(0);
  files!: ReadonlyMap<string, string>;
  effect!: Effect;
  readonly parsed = PARSED;
  /** Modules that are loaded once for all processes. */
  shared: unknown;
  readonly closed = closed;
  isAlive = false;
  /** Its clock may jump. */
  skew = 0;
  /** Set once it listens. */
  dispatch: Dispatch | null = null;
  /** Called for each request that is open when it closes its connections. */
  readonly open = new Set<() => void>();
  /** Calls of its store until it is killed, and whether the last of them still happens. */
  dies: { calls: number; happens: boolean } | null = null;
  /** Called when it is killed. */
  readonly whenDead = new Set<() => void>();
  /** While it stands still, as after SIGSTOP: what came meanwhile, and has to wait. */
  #held: (() => void)[] | null = null;
  /** Whether it stands still until another process takes it for gone. */
  isLeft = false;
  readonly globals: Record<string, unknown>;
  readonly modules: Record<string, unknown>;
  #rejected!: (error: unknown) => void;
  /** What makes the state of modules as it is in a new process. */
  readonly #anew: (() => void)[] = [];
  #born = 0;
  #faults: { readonly from: number; to: number }[] = [];
  #timers = 0;

  constructor() {
    this.globals = this.#makeGlobals();
    this.modules = this.#makeModules();
  }

  /** It is another process, with code that is loaded already: by one of an earlier simulation. */
  begin({ world, database, name, skew, files, effect, rejected }: ProcessOptions): void {
    this.world = world;
    this.database = database;
    this.name = name;
    this.skew = skew;
    this.files = files;
    this.random = world.random(name);
    this.#born = world.now;
    this.effect = (...told) => {
      if (this.isAlive) effect(...told);
    };
    this.#rejected = rejected;
    this.isAlive = true;
    for (const make of this.#anew) make();
    this.dispatch = null;
    this.dies = null;
    this.whenDead.clear();
    this.open.clear();
    this.#held = null;
    this.isLeft = false;
    this.thaw = () => {};
    this.#faults = [];
    this.#timers = 0;
  }

  /** A function that a module has, with its state: each process has one of its own. */
  own<Values extends unknown[], Result>(make: () => (...values: Values) => Result): (...values: Values) => Result {
    let made = make();
    this.#anew.push(() => {
      made = make();
    });
    return (...values) => made(...values);
  }

  /** The same for a list that is empty at first. */
  ownList<Value>(): Value[] {
    const list: Value[] = [];
    this.#anew.push(() => {
      list.length = 0;
    });
    return list;
  }

  trace(line: string): void {
    if (this.isAlive) this.world.trace(`${this.name} ${line}`);
  }

  /** Runs something later, unless it is dead by then. */
  after(delay: number, run: () => void): () => void {
    let isOver = false;
    const come = () => {
      if (!this.isAlive || isOver) return;
      if (this.#held !== null) this.#held.push(come);
      else run();
    };
    const cancel = this.world.after(delay, come);
    return () => {
      isOver = true;
      cancel();
    };
  }

  kill(): void {
    if (!this.isAlive) return;
    this.trace("is killed");
    this.isAlive = false;
    this.fault();
    this.database.forget(this);
    for (const hear of this.whenDead) hear();
  }

  /** It closes its connections, as a service does that stops, and takes no more of them. */
  hangUp(): void {
    this.dispatch = null;
    for (const close of this.open) close();
  }

  /** @param milliseconds null: until another process has taken it for gone */
  freeze(milliseconds: number | null): void {
    if (this.#held !== null) return;
    this.trace("stands still");
    const held: (() => void)[] = [];
    this.#held = held;
    this.isLeft = milliseconds === null;
    const goOn = this.fault();
    const thaw = () => {
      if (this.#held !== held) return;
      this.trace("goes on");
      goOn();
      for (const come of held) this.world.after(0, come);
      this.#held = null;
      this.isLeft = false;
    };
    this.thaw = thaw;
    if (milliseconds !== null) this.world.after(milliseconds, thaw);
  }

  /** Ends that. */
  thaw = (): void => {};

  /** Something is wrong with it from now on. @returns what tells that it is over */
  fault(): () => void {
    const fault = { from: this.world.now, to: Number.POSITIVE_INFINITY };
    this.#faults.push(fault);
    return () => {
      fault.to = this.world.now;
    };
  }

  /** Whether something was wrong with it at some moment of that time. */
  wasFaulty(since: number, until: number): boolean {
    return this.#faults.some(({ from, to }) => from <= until && to >= since);
  }

  /** Counts a call of the store. @returns whether it still happens, and whether its caller is there to hear of it */
  enter(): { happens: boolean; hears: boolean } {
    if (!this.isAlive) return { happens: false, hears: false };
    if (this.dies === null || --this.dies.calls > 0) return { happens: true, hears: true };
    const { happens } = this.dies;
    this.kill();
    return { happens, hears: false };
  }

  #setTimer(delay: unknown, every: boolean, callback: (...values: unknown[]) => void, values: unknown[]): Timer {
    const number = ++this.#timers;
    const milliseconds = Math.max(Math.trunc(Number(delay)) || 0, 1);
    let cancel = () => {};
    const begin = () => {
      cancel = this.after(milliseconds, () => {
        if (every) begin();
        callback(...values);
      });
    };
    begin();
    const timer: Timer = {
      ref: () => timer,
      unref: () => timer,
      hasRef: () => true,
      refresh() {
        cancel();
        begin();
        return timer;
      },
      close() {
        cancel();
        return timer;
      },
      [Symbol.toPrimitive]: () => number,
      [Symbol.dispose]: () => cancel(),
      cancel: () => cancel(),
    };
    return timer;
  }

  #makeGlobals(): Record<string, unknown> {
    const self = this;
    const steady = () => self.world.now - self.#born + 1_000;
    const systemTime = () => Math.floor(self.world.systemTime() + self.skew);
    class SimulatedDate extends Date {
      constructor(...values: unknown[]) {
        super(...((values.length === 0 ? [systemTime()] : values) as [number]));
      }
      static override now = systemTime;
    }
    const setTimer =
      (every: boolean) =>
      (callback: (...values: unknown[]) => void, delay?: unknown, ...values: unknown[]) =>
        self.#setTimer(delay, every, callback, values);
    type Immediate = { cancel(): void; unref(): void; ref(): void };
    const setImmediate = (callback: (...values: unknown[]) => void, ...values: unknown[]): Immediate => {
      // Of a turn after a turn, one is enough: others come in between as well.
      if (callback === setImmediate) return setImmediate(values[0] as () => void, ...values.slice(1));
      return { cancel: self.after(0, () => callback(...values)), unref() {}, ref() {} };
    };
    const clear = (timer: Timer | undefined | null) => timer?.cancel();
    const math = Object.create(Math, { random: { value: () => self.random.next() } });
    class SimulatedAbortSignal extends AbortSignal {
      static override timeout(delay: number): AbortSignal {
        const controller = new AbortController();
        const ended = new DOMException("The operation was aborted due to timeout", "TimeoutError");
        self.#setTimer(delay, false, () => controller.abort(ended), []);
        return controller.signal;
      }
      static override [Symbol.hasInstance](value: unknown): boolean {
        return Function.prototype[Symbol.hasInstance].call(AbortSignal, value);
      }
    }
    const nothing = () => process;
    const own = {
      env: {},
      pid: 1,
      uptime: () => steady() / 1_000,
      hrtime: Object.assign(() => [Math.floor(steady() / 1_000), (steady() % 1_000) * 1e6], {
        bigint: () => BigInt(Math.floor(steady() * 1e6)),
      }),
      memoryUsage: Object.assign(
        () => ({ rss: 1e8, heapTotal: 5e7, heapUsed: 4e7, external: 1e6, arrayBuffers: 1e6 }),
        {
          rss: () => 1e8,
        },
      ),
      cpuUsage: () => ({ user: 0, system: 0 }),
      on: nothing,
      once: nothing,
      off: nothing,
      emitWarning: () => {},
      exit: () => self.#rejected(new Error("it has called process.exit")),
    };
    return {
      Date: SimulatedDate,
      performance: { now: steady, timeOrigin: 0, mark: () => {}, measure: () => {} },
      setTimeout: setTimer(false),
      setInterval: setTimer(true),
      setImmediate,
      clearTimeout: clear,
      clearInterval: clear,
      clearImmediate: clear,
      Math: math,
      AbortSignal: SimulatedAbortSignal,
      process: Object.create(process, Object.getOwnPropertyDescriptors(own)),
      crypto: { randomUUID: self.#uuid, getRandomValues: self.#fill, subtle: realCrypto.webcrypto.subtle },
      fetch: () => Promise.reject(new Error("fetch leaves the simulation")),
    };
  }

  readonly #bytes = (size: number): Buffer => this.random.bytes(size);
  readonly #fill = <T extends NodeJS.ArrayBufferView>(view: T): T => {
    Buffer.from(view.buffer, view.byteOffset, view.byteLength).set(this.#bytes(view.byteLength));
    return view;
  };
  readonly #uuid = (): string => {
    const hex = this.#bytes(16).toString("hex");
    const variant = "89ab"[Number.parseInt(hex[16]!, 16) % 4];
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20)}`;
  };

  #makeModules(): Record<string, unknown> {
    const { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate, performance } =
      this.globals;
    const missing = (path: unknown) => Object.assign(new Error(`there is no file ${path}`), { code: "ENOENT" });
    const readFileSync = (path: unknown, encoding?: unknown) => {
      const text = isSchema(path) ? readFile(path, "utf8") : this.files.get(String(path));
      if (text === undefined) throw missing(path);
      return encoding === undefined ? Buffer.from(text) : text;
    };
    const wait = (delay: number, value?: unknown, { signal }: { signal?: AbortSignal } = {}) =>
      new Promise((resolve, reject) => {
        const aborted = () => {
          timer.cancel();
          reject(
            Object.assign(new Error("The operation was aborted", { cause: signal?.reason }), {
              name: "AbortError",
              code: "ABORT_ERR",
            }),
          );
        };
        const timer = this.#setTimer(
          delay,
          false,
          () => {
            signal?.removeEventListener("abort", aborted);
            resolve(value);
          },
          [],
        );
        if (signal?.aborted) aborted();
        else signal?.addEventListener("abort", aborted, { once: true });
      });
    const noFile = (path: unknown): never => {
      throw missing(path);
    };
    const soon = setImmediate as (work: () => void) => void;
    const timers = { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate };
    return {
      crypto: {
        ...closed("crypto", CRYPTO),
        randomBytes: this.#bytes,
        randomUUID: this.#uuid,
        randomFillSync: this.#fill,
        getRandomValues: this.#fill,
        randomInt: (low: number, high?: number) =>
          high === undefined ? this.random.below(low) : low + this.random.below(high - low),
      },
      fs: {
        ...closed("fs", []),
        readFileSync,
        existsSync: (path: unknown) => this.files.has(String(path)),
        readdirSync: (path: unknown) => (isSchema(path) ? readFolder(path) : noFile(path)),
        realpathSync: (path: unknown) => path,
        statSync: noFile,
        readlinkSync: noFile,
      },
      "fs/promises": {
        ...closed("fs/promises", []),
        readFile: async (path: unknown, encoding?: unknown) => readFileSync(path, encoding),
      },
      os: { ...closed("os", []), hostname: () => this.name, availableParallelism: () => 1, tmpdir: () => "/tmp" },
      perf_hooks: { performance },
      process: this.globals.process,
      timers,
      "timers/promises": { setTimeout: wait, setImmediate: (value?: unknown) => wait(0, value), scheduler: { wait } },
      tty: { isatty: () => false },
      // Without the threads of the real one, which take a time of their own.
      zlib: {
        ...closed("zlib", []),
        deflateRaw: (data: zlib.InputType, options: zlib.ZlibOptions, done: Done) =>
          soon(() => done(null, zlib.deflateRawSync(data, options))),
        inflateRaw: (data: zlib.InputType, done: Done) => soon(() => done(null, zlib.inflateRawSync(data))),
      },
    };
  }
}

type Done = (error: null, result: Buffer) => void;

/** The schemas of a checkout are part of the source. */
const SCHEMAS = new URL("../../schemas/", import.meta.url).href;
const isSchema = (path: unknown): path is URL => path instanceof URL && path.href.startsWith(SCHEMAS);

const CRYPTO = [
  "createHash",
  "createHmac",
  "createPublicKey",
  "createPrivateKey",
  "createSecretKey",
  "hash",
  "timingSafeEqual",
];
CRYPTO.push("KeyObject", "getHashes", "getCiphers", "getCurves");
