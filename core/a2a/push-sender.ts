/**
 * Sends outstanding notifications to the receivers of tasks. The process that ends a task sends them at once. A process claims a task
 * first, so that receivers get one notification after the other, and another process continues when that one has died.
 */
import type { Logger } from "pino";
import { systemTime } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { RecentMap } from "../lib/recent-map.ts";
import { backOff } from "../lib/retry.ts";
import { createTurns } from "../lib/turns.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { AllowedAddresses } from "../outbound/allowed-addresses.ts";
import { idOfRow } from "../storage/collection.ts";
import { nameProcess } from "../storage/membership.ts";
import { Orphans } from "../storage/orphans.ts";
import { allRows } from "../storage/ranges.ts";
import { type Row, removeUnchanged } from "../storage/store.ts";
import type { PushDelivery } from "./push-delivery.ts";
import { duePushes, type NoticeValue, type Pending, type Push, TASK_NOTICES, withoutClaim, withTry } from "./pushes.ts";
import type { Task, TaskRecord } from "./task.ts";
import type { TaskRows } from "./task-rows.ts";

/** Pause between two scans for due notifications. Those of tasks that end in this process are sent at once. */
const POLL_INTERVAL_MS = 1_000;
const ROWS_PER_READ = 500;
/** Rows read in one scan: the next one continues after them, so that many rows of one user do not hide those of others. */
const MAX_ROWS_PER_LOOK = 5_000;
/** Tasks whose receivers are notified in parallel: of all users, and of one. */
const MAX_TASKS = 32;
const MAX_TASKS_OF_USER = 4;
/** Receivers of one task that are notified in parallel. */
const MAX_RECEIVERS_AT_ONCE = 4;
const MAX_TRIES = 20;
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 600_000;
/** How many receivers are at least remembered as failing, so that the log warns of each once. */
const MAX_FAILING = 1_000;
/** Node's timers with a longer delay would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;
/** How much longer a claim lasts than its requests may take. */
const CLAIM_RESERVE_MS = 30_000;

type PushSettings = Manifest["server"]["push"];

interface PushSenderOptions {
  /** The settings of the current manifest. */
  settings(): PushSettings;
  /** The task with what its agent has said. */
  whole(record: TaskRecord): Promise<Task | undefined>;
  readonly logger: Logger;
}

export class PushSender {
  readonly #rows: TaskRows;
  readonly #options: PushSenderOptions;
  readonly #looks: Interval;
  readonly #alone = nameProcess();
  /** The owners of the tasks whose notifications are being sent. */
  readonly #owners = new Map<string, string>();
  readonly #telling = new Set<Promise<void>>();
  readonly #closing = new AbortController();
  #delivery: Promise<PushDelivery> | null = null;
  #addresses: readonly [list: readonly string[], addresses: AllowedAddresses] | null = null;
  /** Whether the last scan found more than may be sent in parallel. */
  #isBehind = false;
  /** The last row of a scan that did not reach the end. */
  #lookedUntil: string | undefined;
  /** The notifications that processes have left. */
  readonly #orphans: Orphans;
  /** Addresses of receivers that did not accept their last notification: the log has said so. */
  readonly #failing = new RecentMap<true>(MAX_FAILING);

  constructor(rows: TaskRows, options: PushSenderOptions) {
    this.#rows = rows;
    this.#options = options;
    const failed = (error: unknown) => this.#failed(error);
    this.#looks = new Interval(POLL_INTERVAL_MS, () => this.#look(), failed);
    this.#orphans = new Orphans({
      store: rows.store,
      membership: rows.membership,
      prefix: TASK_NOTICES,
      processOf: ({ value }) => (JSON.parse(value) as NoticeValue)[2],
      end: (notice, process) => this.#recover(notice, process),
      failed,
    });
  }

  get isEnabled(): boolean {
    return this.#options.settings().enabled;
  }

  get perTask(): number {
    return this.#options.settings().perTask;
  }

  get addresses(): AllowedAddresses {
    const { allowPrivate } = this.#options.settings();
    if (this.#addresses?.[0] !== allowPrivate) this.#addresses = [allowPrivate, new AllowedAddresses(allowPrivate)];
    return this.#addresses[1];
  }

  /** The keys with which receivers verify signatures, as a JSON Web Key Set. */
  async publicKeys(): Promise<{ keys: object[] }> {
    return (await this.#open()).signer.publicKeys();
  }

  /** Continues what dead processes have left. */
  async start(): Promise<void> {
    await this.#orphans.start();
    this.#looks.start(0);
  }

  /** Starts a scan now, because there is a new notification. */
  hurry(): void {
    this.#looks.hurry();
  }

  /** Stops sending. Outstanding notifications are sent by another process, or after the next start. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([this.#orphans.close(), this.#looks.stop()]);
    await Promise.all(this.#telling);
    await (await this.#delivery)?.close();
  }

  get #process(): string {
    return this.#rows.membership?.name ?? this.#alone;
  }

  #failed(error: unknown): void {
    this.#options.logger.warn({ err: error }, `push notifications could not be looked through: ${messageOf(error)}`);
  }

  async #recover(notice: Row, process: string): Promise<void> {
    await this.#rows.pushes.change(idOfRow(notice), (before) =>
      before.claim?.process === process ? withoutClaim(before) : undefined,
    );
    this.hurry();
  }

  async #look(): Promise<void> {
    this.#isBehind = false;
    if (!this.isEnabled) return;
    const after = this.#lookedUntil;
    this.#lookedUntil = undefined;
    const range = { ...this.#rows.pushes.before(systemTime() + 1), ...(after !== undefined && { after }) };
    let read = 0;
    for await (const rows of allRows(this.#rows.store, range, ROWS_PER_READ)) {
      for (const row of rows) {
        if (this.#closing.signal.aborted) return;
        this.#begin(row);
      }
      read += rows.length;
      if (this.#owners.size >= MAX_TASKS) return;
      if (read < MAX_ROWS_PER_LOOK) continue;
      this.#lookedUntil = rows.at(-1)!.key;
      return;
    }
  }

  #begin(row: Row): void {
    const task = idOfRow(row);
    const [, owner] = JSON.parse(row.value) as NoticeValue;
    if (this.#owners.has(task)) return;
    const own = owner === "" ? 0 : [...this.#owners.values()].filter((each) => each === owner).length;
    if (this.#owners.size >= MAX_TASKS || own >= MAX_TASKS_OF_USER) {
      this.#isBehind = true;
      return;
    }
    this.#owners.set(task, owner);
    const telling = this.#tell(task, row)
      .catch((error) => this.#failed(error))
      .finally(() => {
        this.#owners.delete(task);
        this.#telling.delete(telling);
        if (this.#isBehind) this.hurry();
      });
    this.#telling.add(telling);
  }

  async #tell(id: string, row: Row): Promise<void> {
    const { store, pushes } = this.#rows;
    const { timeout } = this.#options.settings();
    const now = systemTime();
    const claimed = await pushes.change(id, (before) => {
      if (before.claim !== undefined && before.claim.until > now) return undefined;
      const rounds = Math.ceil(before.pushes.length / MAX_RECEIVERS_AT_ONCE);
      return { ...before, claim: { process: this.#process, until: now + timeout * rounds + CLAIM_RESERVE_MS } };
    });
    if (claimed === undefined) {
      // Another process was first, or the task no longer exists: then the row is orphaned.
      if ((await pushes.read(id)) === undefined) await removeUnchanged(store, row);
      return;
    }
    const found = await this.#rows.read(claimed.agent, id);
    if (found === undefined) {
      await pushes.change(id, (before) => ({ ...before, pushes: [] }));
      return;
    }
    // Where its run is gone, the receiver is told at least how it stands.
    const task = (await this.#options.whole(found.record)) ?? found.record.task;
    const turns = createTurns(MAX_RECEIVERS_AT_ONCE);
    const due = duePushes(claimed, now);
    const outcomes = await Promise.all(due.map((push) => turns(() => this.#try(push, task))));
    const settled = await pushes.change(id, (before) =>
      due.reduce(
        (now, { config, pending }, index) => withTry(now, config.id, pending!, outcomes[index]!),
        withoutClaim(before),
      ),
    );
    if (settled !== undefined && duePushes(settled, systemTime()).length > 0) this.hurry();
  }

  /** Tries to send a notification. Returns what is still outstanding; null when the receiver has accepted it or never will. */
  async #try({ config, pending }: Push, task: Task): Promise<Pending | null> {
    const { timeout, max, retry } = this.#options.settings();
    const { tries, since } = pending!;
    // Not counted as a try, because the service is stopping.
    if (this.#closing.signal.aborted) return pending!;
    // The log must not contain the whole URL or a token.
    const { host } = new URL(config.url);
    try {
      const delivery = await this.#open();
      const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(Math.min(timeout, MAX_TIMER_MS))]);
      await delivery.send({ config, task, max }, signal);
      if (this.#failing.get(config.url) === true)
        this.#options.logger.info({ host }, `push notifications are taken by ${host} again`);
      this.#failing.delete(config.url);
      return null;
    } catch (error) {
      const again = systemTime() + backOff(tries, FIRST_PAUSE_MS, MAX_PAUSE_MS);
      const about = { task: task.id, host, tries: tries + 1 };
      const reason =
        (error as Error)?.name === "TimeoutError" ? "it takes longer than server.push.timeout" : messageOf(error);
      if (this.#closing.signal.aborted) return pending!;
      if (tries + 1 < MAX_TRIES && again - since <= retry) {
        const level = this.#failing.get(config.url) === true ? "debug" : "warn";
        this.#failing.set(config.url, true);
        this.#options.logger[level](about, `a push notification was not taken by ${host}: ${reason}`);
        return { ...pending!, tries: tries + 1, due: again };
      }
      this.#options.logger.warn(about, `a push notification to ${host} was given up: ${reason}`);
      return null;
    }
  }

  #open(): Promise<PushDelivery> {
    this.#delivery ??= import("./push-delivery.ts").then(
      ({ PushDelivery }) => new PushDelivery(this.#rows.store, () => this.addresses),
    );
    return this.#delivery;
  }
}
