/** Several Penstock processes on one PostgreSQL, what is done to them, and when it was. */
import type { ChildProcess } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { STEPS } from "../crash/workflow-clients.ts";
import { MANIFEST } from "../crash/workflow-runs.ts";
import type { Random } from "../fuzz/random.ts";
import { PENSTOCK, type Served, serve } from "../support/command-line.ts";
import { EXAMPLES } from "../support/plugin-folder.ts";
import type { PostgresServer } from "../support/postgres.ts";
import { AGENT_PLUGINS, AGENTS } from "./agents.ts";
import type { Pair, WAYS_TO_GO } from "./pair.ts";
import { ready } from "./settled.ts";

/** A time span in milliseconds since 1970; it still lasts while `to` is infinite. */
interface Span {
  readonly from: number;
  to: number;
}

export interface Member {
  readonly index: number;
  served: Served | null;
  frozen: boolean;
}

/** Everything that was done, for who judges what has come of it. */
export interface Deeds {
  /** When each process was killed. */
  readonly kills: Map<number, number>;
  /** Processes that ended while they booted, since the database went away. Until then they may have taken up what others had left. */
  readonly failedBoots: Set<number>;
  readonly freezes: (Span & { readonly pid: number })[];
  /** The database was away: stopped, or frozen. */
  readonly outages: Span[];
  /** The longest time in milliseconds that a process took to be ready again after each failover. */
  readonly failovers: number[];
}

const BOOT_PAUSE_MS = 200;
/** Of what a process has said, so many characters are shown. */
const SHOWN = 3_000;
/** A process finds the new primary within this. */
const READY_MS = 5_000;
/** A process that boots while the database comes back may fail for so long after. */
const OUTAGE_ECHO_MS = 10_000;

/** What a step does outside has a mark at its begin and one at its end, in a file that outlives the process. */
const STEP = `import { appendFileSync } from "node:fs";
const mark = (what, key) => appendFileSync("effects.log", what + " " + process.pid + " " + Date.now() + " " + key + "\\n");
export default { kind: "step", config: { type: "object", properties: { key: { type: "string" }, most: { type: "number", default: 20 } } },
  execute: async ({ data, idempotencyKey, config, signal }) => {
    mark("begin", idempotencyKey);
    try {
      await new Promise((resolve, reject) => {
        setTimeout(resolve, Math.random() * config.most);
        signal.addEventListener("abort", () => reject(new Error("stopped")));
      });
    } finally { mark("end", idempotencyKey); }
    return config.key === undefined ? { ...data, n: data.n + 1 } : { [config.key]: data.n - 3 };
  } };`;

const slowSteps = Array.from(
  { length: STEPS },
  (_, index) => `      - { id: s${index}, andThen: { use: run, with: { most: 400 } } }\n`,
).join("");

const MORE = `  slowly:
    recoveries: 100
    steps:
${slowSteps}
memory: { default: {} }
providers: { demo: { use: scripted }, charging: { use: charging } }
agents:
  assistant: { name: Assistant, description: Repeats, instructions: Repeat., model: demo/echo, memory: default }
${AGENTS}`;

export class Cluster {
  readonly members: Member[];
  readonly deeds: Deeds = { kills: new Map(), failedBoots: new Set(), freezes: [], outages: [], failovers: [] };
  /** What must not happen to a process, in words. */
  readonly wrong: string[] = [];
  readonly folder = mkdtempSync(join(tmpdir(), "penstock-chaos-"));
  readonly #database: PostgresServer;
  readonly #ends: (() => unknown)[] = [];
  /** What each process has said, each piece with the time at which it was heard. */
  readonly #said = new Map<number, string>();
  #closed = false;

  constructor(database: PostgresServer, url: string, size: number) {
    this.#database = database;
    this.members = Array.from({ length: size }, (_, index) => ({ index, served: null, frozen: false }));
    const plugins = Object.entries({ "steps/run.mjs": STEP, ...AGENT_PLUGINS });
    for (const kind of ["steps", "tools", "providers"])
      mkdirSync(join(this.folder, "plugins", kind), { recursive: true });
    for (const [name, text] of plugins) writeFileSync(join(this.folder, "plugins", name), text);
    writeFileSync(join(this.folder, "service.yaml"), `store: ${url}${MANIFEST}${MORE}`);
  }

  /** Boots a member that is down, again and again while the database may be the reason that it does not start. */
  async boot(member: Member): Promise<void> {
    const config = join(this.folder, "service.yaml");
    const command = ["serve", "--config", config, "--plugins", EXAMPLES, "--port", "0"];
    while (!this.#closed) {
      const since = Date.now();
      let pid = 0;
      const begun = (child: ChildProcess) => {
        pid = child.pid!;
        this.#listen(child);
      };
      try {
        const registrar = { after: (end: () => unknown) => void this.#ends.push(end) };
        const call = { cwd: this.folder, begun };
        const served = await serve(registrar as never, [process.execPath, PENSTOCK, ...command], call);
        served.child.on("close", () => this.#ended(member, served));
        member.served = served;
        return;
      } catch (error) {
        this.deeds.failedBoots.add(pid);
        if (!this.isAway(since - OUTAGE_ECHO_MS)) {
          this.wrong.push(`a process does not start: ${(error as Error).message.slice(0, 2_000)}`);
          return;
        }
        await sleep(BOOT_PAUSE_MS);
      }
    }
  }

  #listen(child: ChildProcess): void {
    const hear = (text: string) => {
      this.#said.set(child.pid!, `${this.#said.get(child.pid!) ?? ""}${Date.now()} ${text.trimEnd()}\n`);
    };
    hear("begins");
    for (const stream of [child.stdout!, child.stderr!]) stream.on("data", (data) => hear(String(data)));
    child.once("exit", (code, signal) => hear(`ends with ${code ?? signal}`));
  }

  /** Problems, with what the processes have said that they name. */
  explained(problems: readonly string[]): string[] {
    const named = [...this.#said].filter(([pid]) =>
      problems.some((problem) => problem.split(/\D+/).includes(`${pid}`)),
    );
    return [...problems, ...named.map(([pid, said]) => `process ${pid}:\n${said.slice(-SHOWN)}`)];
  }

  /** Whether the database was away at some time since. */
  isAway(since: number): boolean {
    return this.deeds.outages.some(({ to }) => to >= since);
  }

  /** One that is up, if need be after a while. Some of them may be frozen. */
  async pick(random: Random, except?: Member): Promise<Member & { served: Served }> {
    for (;;) {
      const up = this.members.filter((member) => member.served !== null && member !== except);
      if (up.length > 0) return random.pick(up) as Member & { served: Served };
      await sleep(BOOT_PAUSE_MS);
    }
  }

  /** `kill -9`. At least one other stays. */
  async kill(random: Random): Promise<void> {
    const able = this.members.filter(({ served, frozen }) => served !== null && !frozen);
    if (able.length < 2) return;
    const member = random.pick(able);
    const { served } = member;
    member.served = null;
    // From now on: that it has ended is heard here later than others may see it.
    this.deeds.kills.set(served!.child.pid!, Date.now());
    await served!.interrupt("SIGKILL");
    await this.boot(member);
  }

  async freeze(random: Random, milliseconds: number): Promise<void> {
    const able = this.members.filter(({ served, frozen }) => served !== null && !frozen);
    if (able.length < 2) return;
    const member = random.pick(able);
    const child = member.served!.child as ChildProcess;
    const span = { pid: child.pid!, from: Date.now(), to: Number.POSITIVE_INFINITY };
    member.frozen = true;
    this.deeds.freezes.push(span);
    child.kill("SIGSTOP");
    await sleep(milliseconds);
    child.kill("SIGCONT");
    span.to = Date.now();
    member.frozen = false;
  }

  async restartDatabase(mode: "fast" | "immediate", milliseconds: number): Promise<void> {
    await this.outage(async () => {
      await this.#database.stop!(mode);
      await sleep(milliseconds);
      await this.#database.start!();
    });
  }

  async freezeDatabase(milliseconds: number): Promise<void> {
    await this.outage(async () => {
      const goOn = await this.#database.freeze!();
      await sleep(milliseconds);
      goOn();
    });
  }

  /** Another server becomes the primary. Every process that is up finds it by itself. */
  async failOver(pair: Pair, way: (typeof WAYS_TO_GO)[number]): Promise<void> {
    await this.outage(async () => {
      await pair.failOver(way, async () => {
        const able = this.members.filter(({ served, frozen }) => served !== null && !frozen);
        const times = await Promise.all(able.map(({ served }) => this.#readyAfter(served!, Date.now())));
        this.deeds.failovers.push(Math.max(0, ...times));
      });
    });
  }

  /** Milliseconds. One that is killed or frozen meanwhile takes none. */
  async #readyAfter({ child, url }: Served, since: number): Promise<number> {
    const error = await ready(url).then(
      () => null,
      (failure: Error) => failure,
    );
    const took = Date.now() - since;
    const { kills, freezes } = this.deeds;
    if (kills.has(child.pid!) || freezes.some(({ pid, to }) => pid === child.pid && to >= since)) return 0;
    if (error !== null || took > READY_MS)
      this.wrong.push(`a process was not ready ${took} ms after a failover: ${error?.message ?? "it is now"}`);
    return took;
  }

  /** The database is away until `work` has ended. */
  async outage(work: () => Promise<void>): Promise<void> {
    const span = { from: Date.now(), to: Number.POSITIVE_INFINITY };
    this.deeds.outages.push(span);
    await work();
    span.to = Date.now();
  }

  #ended(member: Member, served: Served): void {
    if (member.served !== served || this.#closed) return;
    member.served = null;
    this.wrong.push(`a process ended by itself with ${served.child.exitCode}: ${served.stderr().slice(-2_000)}`);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#ends.map((end) => end()));
    rmSync(this.folder, { recursive: true, force: true });
  }
}
