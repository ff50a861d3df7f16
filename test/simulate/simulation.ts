/** One simulation: services, clients and what breaks, by a plan; and what must be true once everything works again. */
import { PROCESSES } from "../../core/storage/keys.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { type InjectedReply, type InjectOptions, inject } from "../support/inject.ts";
import type { Build, Inside } from "./build.ts";
import { startClient } from "./clients.ts";
import { Database } from "./database.ts";
import { beginningOf, EARLIER, type Earlier } from "./earlier.ts";
import { CONFIG, manifestText } from "./manifest.ts";
import type { Action } from "./plan.ts";
import type { SimulatedProcess } from "./process.ts";
import { leftovers } from "./rest.ts";
import { World } from "./world.ts";

/** Everything that a plan begins has begun by then. */
const PLAN_MS = 20_000;
/** So long may it take until everything has ended once nothing breaks any more: no look that repeats seldom is needed for it. */
const PATIENCE_MS = 45_000;
const BOOT_MS = 30_000;
/** And so long until nothing is left of it in the store. */
const REST_MS = 20_000;

/** The number of an execution in the key of a call, where its client has chosen the id. */
const EXECUTION = /@(\d+):/;

interface Happened {
  /** Null for one of an earlier release, which was killed. */
  readonly process: SimulatedProcess | null;
  readonly at: number;
  readonly detail: unknown;
}

/** A service, which is one process after the other. */
class Service {
  process: SimulatedProcess | null = null;
  running: Awaited<ReturnType<Inside["run"]>> | null = null;
  lives = 0;
  version = 0;
  /** Milliseconds that pass until the next process. */
  rest = 1_000;
  readonly files = new Map([[CONFIG, manifestText()]]);
  readonly #sim: Simulation;
  readonly #build: Build;
  readonly #name: string;

  constructor(sim: Simulation, build: Build, name: string) {
    this.#sim = sim;
    this.#build = build;
    this.#name = name;
  }

  /** Starts a process, and the next one when it has ended. */
  start(skew: number): void {
    const { world, database } = this.#sim;
    const name = `${this.#name}${++this.lives}`;
    const [process, inside] = this.#build(this.#sim.processes.size);
    process.begin({
      world,
      database,
      name,
      skew,
      files: this.files,
      effect: (kind, key, detail) => this.#sim.record(process, kind, key, detail),
      rejected: (error) => world.complain(`${name}: ${String(error)}`),
    });
    this.process = process;
    this.#sim.processes.add(process);
    process.whenDead.add(() => {
      this.running = null;
      world.after(this.rest, () => this.start(process.skew));
      this.rest = 1_000;
    });
    world.trace(`${name} starts`);
    inside.run().then(
      (running) => {
        if (process.isAlive) this.running = running;
      },
      (error: Error & { booted?: { issues: unknown } }) => {
        if (error.booted !== undefined && !/unavailable|lost/.test(JSON.stringify(error.booted.issues)))
          world.complain(`${name} does not start: ${JSON.stringify(error.booted.issues)}`);
        process.kill();
      },
    );
  }

  reload(): void {
    this.files.set(CONFIG, manifestText(++this.version));
    this.running?.reload().catch(() => {});
  }

  stop(): void {
    const process = this.process!;
    const { running } = this;
    if (running === null) return;
    this.running = null;
    process.fault();
    // One that stands still hears of it when it goes on.
    process.after(0, () => void running.stop().finally(() => process.kill()));
  }
}

export class Simulation {
  readonly world: World;
  readonly database: Database;
  readonly services: Service[];
  /** All that there ever were. */
  readonly processes = new Set<SimulatedProcess>();
  readonly #happened = new Map<string, Happened[]>();
  /** What clients ask in the end, when all works again. */
  readonly atRest: (() => Promise<void>)[] = [];
  #left = 0;

  readonly #earlier: Earlier | null;

  /** @param earlier what it begins with */
  constructor(seed: number, build: Build, rows: Store, earlier: Earlier | null) {
    this.world = new World(seed, earlier === null ? undefined : beginningOf(earlier, seed));
    this.#earlier = earlier;
    this.database = new Database(this.world, rows);
    const shape = this.world.random("shape");
    const count = 1 + shape.below(3);
    this.services = ["a", "b", "c"].slice(0, count).map((name) => new Service(this, build, name));
  }

  async play(actions: readonly Action[]): Promise<void> {
    const { world, services } = this;
    const skews = world.random("skews");
    if (this.#earlier !== null) {
      const { rows, effects } = this.#earlier;
      await this.database.begin(rows);
      for (const [kind, key, detail] of effects)
        this.#add(kind, key, { process: null, at: -1, detail: detail ?? undefined });
    }
    for (const service of services) service.start(skews.chance(0.5) ? 0 : skews.below(20_000) - 10_000);
    const booted = await world.run(() => services.every(({ running }) => running !== null), BOOT_MS);
    if (!booted) return world.complain("the services do not start");
    this.#left = actions.length;
    for (const action of actions) world.after(action.at, () => this.#do(action));
    await world.run(() => false, PLAN_MS);
    world.trace("everything works again");
    this.database.heal();
    for (const { process } of services) process!.dies = null;
    const ended = await world.run(() => this.#left === 0, PATIENCE_MS);
    if (!ended && world.complaints.length === 0) world.complain(`${this.#left} clients wait for ever`);
    if (this.atRest.length > 0) await this.#askAll();
    // What an earlier release has left ends with its clients, and a plan that was shrunk has not all of them.
    const isWhole = this.#earlier?.left.every(({ key }) =>
      actions.some((each) => "earlier" in each && each.earlier === key),
    );
    if (isWhole !== false) await this.#requireRest();
  }

  async #askAll(): Promise<void> {
    const { world, services } = this;
    await world.run(() => services.every(({ running }) => running !== null), BOOT_MS);
    let asks = this.atRest.length;
    for (const ask of this.atRest) void ask().finally(() => asks--);
    await world.run(() => asks === 0, PATIENCE_MS);
  }

  #do(action: Action): void {
    const { world, database, services } = this;
    const service = "service" in action ? services[action.service % services.length]! : services[0]!;
    const process = service.process!;
    if (action.kind !== "client") {
      this.#left--;
      world.trace(JSON.stringify(action));
    }
    switch (action.kind) {
      case "client":
        startClient(
          this,
          action.does,
          action.number,
          this.#earlier?.left.find(({ key }) => key === action.earlier),
        ).then(
          () => this.#left--,
          (error) => world.complain(`client ${action.number}: ${(error as Error).stack}`),
        );
        break;
      case "crash":
        service.rest = action.rest;
        process.dies = { calls: action.calls, happens: action.happens };
        break;
      case "stop":
        service.rest = action.rest;
        service.stop();
        break;
      case "reload":
        service.reload();
        break;
      case "cut":
        database.cut(process, action.milliseconds);
        break;
      case "freeze":
        process.freeze(action.milliseconds ?? (this.#mayBeLeft(service) ? null : 15_000));
        break;
      case "jump":
        process.skew += action.milliseconds;
        break;
      case "network":
        database.network = action.network;
        world.after(action.milliseconds, () => database.heal());
        break;
    }
  }

  /** Whether a process would be taken for gone when it stands still: it is not yet, there are others, and none of them stands still so long. */
  #mayBeLeft({ running, process }: Service): boolean {
    if (running === null || this.database.isGone(process!)) return false;
    return this.services.length > 1 && !this.services.some((service) => service.process!.isLeft);
  }

  /** Sends a request to the process of a service, which may answer. Null when nothing came back. */
  async request(service: number, options: InjectOptions, patience: number): Promise<InjectedReply | null> {
    const { process } = this.services[service]!;
    if (process === null || process.dispatch === null || !process.isAlive) return null;
    return new Promise((resolve) => {
      const controller = new AbortController();
      const settle = (reply: InjectedReply | null) => {
        process.whenDead.delete(lost);
        process.open.delete(closed);
        forget();
        resolve(reply);
      };
      const lost = () => settle(null);
      const closed = () => {
        controller.abort();
        settle(null);
      };
      const forget = this.world.after(patience, () => {
        process.after(0, () => controller.abort());
        settle(null);
      });
      process.whenDead.add(lost);
      const { onChunk } = options;
      const request = {
        ...options,
        signal: controller.signal,
        ...(onChunk && { onChunk: (chunk: Buffer) => process.isAlive && onChunk(chunk) }),
      };
      process.after(0, () => {
        if (process.dispatch === null) return settle(null);
        process.open.add(closed);
        inject(process.dispatch, request).then(
          (reply) => process.isAlive && settle(reply),
          () => settle(null),
        );
      });
    });
  }

  record(process: SimulatedProcess, kind: string, key: string, detail: unknown): void {
    this.world.trace(`${process.name} EFFECT ${kind} ${key} ${detail}`);
    // What has a key is part of an execution, which others have then.
    this.world.require(
      detail === undefined || !kind.endsWith(" begins") || !this.database.isGone(process),
      () => `${process.name} begins ${kind} ${key}, and was taken for gone`,
    );
    const execution = typeof detail === "string" ? EXECUTION.exec(detail)?.[1] : undefined;
    this.world.require(
      execution === undefined || !kind.endsWith(" begins") || !this.database.isWithAnother(process, Number(execution)),
      () => `${process.name} begins ${kind} ${key}, which another has taken up`,
    );
    this.#add(kind, key, { process, at: this.world.now, detail });
  }

  #add(kind: string, key: string, happened: Happened): void {
    const name = `${kind} ${key}`;
    const list = this.#happened.get(name) ?? [];
    this.#happened.set(name, list);
    list.push(happened);
  }

  /** Whether something was wrong with any process since then. */
  wasFaulty(since: number): boolean {
    return [...this.processes].some((process) => process.wasFaulty(since, this.world.now));
  }

  effects(kind: string, key: string): readonly Happened[] {
    return this.#happened.get(`${kind} ${key}`) ?? [];
  }

  /**
   * What was called several times had the same key each time, and was called again only because something was wrong with the process
   * of the call before, between the two: it was killed, stopped, stood still, was cut off, or did not hear what came of a commit.
   *
   * @param attempts so often it is called where nothing breaks
   */
  requireOneCall(kind: string, key: string, attempts = 1): void {
    const list = this.effects(kind, key);
    const keys = new Set(list.map(({ detail }) => detail));
    this.world.require(keys.size <= 1, () => `${kind} ${key} was called with several keys: ${[...keys]}`);
    const unexplained = list.slice(1).filter(({ at }, index) => {
      const before = list[index]!;
      return before.process !== null && !before.process.wasFaulty(before.at, at);
    });
    this.world.require(
      unexplained.length < attempts,
      () => `${kind} ${key} was called ${list.length} times, and nothing was wrong`,
    );
  }

  /** Nothing is left of what has ended, soon. */
  async #requireRest(): Promise<void> {
    const { world, database } = this;
    let left: string[] = [];
    for (let waited = 0; waited < REST_MS; waited += 2_000) {
      // Where all stand still, nothing else is due.
      world.after(2_000, () => {});
      await world.run(() => false, 2_000);
      if (world.complaints.length > 0) return;
      left = await leftovers((prefix) => database.rows(prefix));
      const processes = await database.rows(PROCESSES);
      if (processes.length > this.services.length) left.push(`there are ${processes.length} processes`);
      if (left.length === 0) return;
    }
    world.complain(`the store has what it should not have: ${left}`);
  }
}

interface Outcome {
  readonly digest: string;
  readonly steps: number;
  /** Null when everything was as it should be. */
  readonly complaint: string | null;
}

interface SimulateOptions {
  /** Called with each line of the trace. */
  readonly onLine?: ((line: string) => void) | undefined;
  /** What the simulated database keeps its rows in, empty. */
  readonly rows?: Store;
}

export async function simulate(
  build: Build,
  seed: number,
  actions: readonly Action[],
  { onLine, rows = createMemoryStore() }: SimulateOptions = {},
): Promise<Outcome> {
  const earlier = actions.some((action) => "earlier" in action) ? EARLIER : null;
  const simulation = new Simulation(seed, build, rows, earlier);
  const { world } = simulation;
  world.onLine = onLine;
  const rejected = (error: unknown) =>
    world.complain(`a rejection that nobody handles: ${(error as Error)?.stack ?? error}`);
  process.on("unhandledRejection", rejected);
  const { stackTraceLimit } = Error;
  // Who is shown no trace needs no stacks either, which take long.
  if (onLine === undefined) Error.stackTraceLimit = 0;
  try {
    await simulation.play(actions);
  } finally {
    process.off("unhandledRejection", rejected);
    Error.stackTraceLimit = stackTraceLimit;
  }
  return { digest: world.digest(), steps: world.steps, complaint: world.complaints[0] ?? null };
}
