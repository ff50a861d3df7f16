/** Several processes on one store: what the others see of an execution, what they may do with it, and what they take over. */
import assert from "node:assert/strict";
import { after, describe, type TestContext, test } from "node:test";
import { unavailable } from "../../core/lib/errors.ts";
import { STOP_REQUESTS } from "../../core/storage/keys.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import type { Commit, Store } from "../../core/storage/store.ts";
import { silent } from "../support/agents.ts";
import { type Collected, collectEvents } from "../support/event-sink.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { soon } from "../support/providers.ts";
import { recordingLogger } from "../support/storage.ts";
import { CALL, cutStore, type Process, processesOf, refusal } from "../support/workflow-process.ts";

const TIMES = { heartbeatInterval: 50, leaseTimeout: 400, stopRequestInterval: 20 };

const world = {
  runs: [] as string[],
  began: () => {},
  aborted: () => {},
  open: Promise.resolve() as Promise<unknown>,
  heeds: true,
};
(globalThis as { penstockProcesses?: typeof world }).penstockProcesses = world;

/** Waits for the world, or for its signal if it heeds that. */
const PLUGINS = {
  "steps/pause.mjs": `export default { kind: "step", execute: async ({ data, idempotencyKey, signal }) => {
    const world = globalThis.penstockProcesses; world.runs.push(idempotencyKey); world.began();
    const aborted = new Promise((_, reject) => signal.addEventListener("abort", () => { world.aborted(); if (world.heeds) reject(new Error("aborted")); }));
    await Promise.race([world.open, aborted]);
    return { ...data, n: (data.n ?? 0) + 1 }; } };`,
};

const MANIFEST = {
  workflows: {
    w: {
      steps: [
        { id: "one", andThen: { use: "pause" } },
        { id: "two", andThen: { use: "pause" } },
      ],
    },
    ask: {
      steps: [
        { id: "ask", andThen: { suspend: { reason: "Yes?" } } },
        { id: "one", andThen: { use: "pause" } },
      ],
    },
  },
};

const DEADLINE = {
  workflows: {
    deadline: {
      steps: [
        {
          id: "race",
          andRace: [
            [
              { id: "ask", andThen: { suspend: { reason: "Yes?" } } },
              { id: "shape", andThen: { set: { yes: "{{ data }}" } } },
            ],
            { id: "timer", andThen: { use: "pause" } },
          ],
        },
      ],
    },
  },
};

/** Lets no `pause` end until `go`. */
function hold(): { began: Promise<void>; go(): void } {
  let go = () => {};
  world.runs = [];
  world.heeds = true;
  world.open = new Promise<void>((resolve) => {
    go = resolve;
  });
  const began = new Promise<void>((resolve) => {
    world.began = resolve;
  });
  return { began, go };
}

const server = await sharedPostgres();
after(() => server?.close());

interface Shared {
  name: string;
  skip: string | false;
  /** Gives as many views of one store as are asked for. */
  open(t: TestContext): Promise<() => Promise<Store>>;
}

const SHARED: readonly Shared[] = [
  {
    name: "one store in memory that says it is shared",
    skip: false,
    async open() {
      const store = createMemoryStore();
      return async () => ({ ...store, kind: "shared" });
    },
  },
  {
    name: "PostgreSQL",
    skip: server === null ? NO_POSTGRES : false,
    async open(t) {
      const url = await server!.createDatabase(t);
      return async () => {
        const store = await openPostgresStore(url, { logger: silent });
        t.after(() => store.close());
        return store;
      };
    },
  },
];

async function until(what: string, look: () => Promise<boolean>): Promise<void> {
  const looking = async () => {
    while (!(await look())) await new Promise((resolve) => setTimeout(resolve, 10));
  };
  await soon(looking(), what);
}

const status = async ({ access }: Process, id: string, workflow = "w") => (await access.state(workflow, id)).status;
const input = (id: string) => ({ input: { a: 1 }, options: { executionId: id } });
const parsed = async (reply: Promise<{ json: string }>) => JSON.parse((await reply).json);

for (const { name, skip, open } of SHARED) {
  describe(`executions of several processes on ${name}`, { skip }, () => {
    /** Starts processes; `wrap` makes of each one's store what it sees. */
    async function processes(t: TestContext, manifest: object = MANIFEST) {
      const view = await open(t);
      const start = await processesOf(t, manifest, { plugins: PLUGINS });
      return async (wrap: (store: Store) => Store = (store) => store, logger = silent) => {
        const store = wrap(await view());
        const process = await start(store, { processTimes: TIMES, logger });
        // One that was killed has nothing to close.
        t.after(() => Promise.race([process.opened.close(), "cut" in store ? store.cut : new Promise(() => {})]));
        return process;
      };
    }

    test("an execution of one is seen by the others: its state, in lists, its events as they come", async (t) => {
      const start = await processes(t);
      const [one, other] = [await start(), await start()];
      const { began, go } = hold();
      const executed = one.access.execute("w", input("e"), CALL);
      await soon(began, "the step");
      assert.equal(await status(other, "e"), "running");
      const list = await parsed(other.access.executions({ limit: 10, offset: 0, status: "running" }));
      assert.deepEqual(
        list.map(({ id, status }: { id: string; status: string }) => [id, status]),
        [["e", "running"]],
      );
      assert.equal((await refusal(other.access.resume("w", "e", {}, CALL))).kind, "not_found");
      assert.equal((await refusal(other.access.replay("w", "e", { stepId: "one" }, CALL))).kind, "invalid_input");
      assert.equal((await refusal(other.access.execute("w", input("e"), CALL))).kind, "conflict");

      const early: Collected[] = [];
      let first = () => {};
      const begun = new Promise<void>((resolve) => {
        first = resolve;
      });
      const following = collectEvents(await other.access.attach("w", "e", 0), (event) => {
        early.push(event);
        if (event.data.type === "step-start") first();
      });
      await soon(begun, "the first events");
      assert.deepEqual(
        early.map(({ data }) => data.type),
        ["workflow-start", "step-start"],
      );
      go();
      assert.equal((await parsed(executed)).status, "completed");
      const events = await soon(following, "the last event");
      assert.deepEqual(events, await collectEvents(await one.access.attach("w", "e", 0)), "the same as where it ran");
      assert.deepEqual(
        (await collectEvents(await other.access.attach("w", "e", 4))).map(({ id }) => id),
        events.map(({ id }) => id).slice(4),
      );
    });

    for (const heeds of [true, false]) {
      const step = heeds ? "a step that heeds its signal" : "a step that does not";
      test(`suspend of an execution that another process runs, with ${step}; it can be resumed anywhere`, async (t) => {
        const start = await processes(t);
        const [one, other] = [await start(), await start()];
        const { began, go } = hold();
        world.heeds = heeds;
        const aborted = new Promise<void>((resolve) => {
          world.aborted = resolve;
        });
        const executed = one.access.execute("w", input("e"), CALL);
        await soon(began, "the step");
        const suspending = other.access.suspend("w", "e", "enough");
        await soon(aborted, "the signal");
        if (!heeds) go();
        const { suspension } = await soon(suspending, "the suspension");
        assert.equal(suspension.reason, "enough");
        const result = await parsed(executed);
        assert.deepEqual([result.status, result.suspension.reason], ["suspended", "enough"]);
        assert.equal((await refusal(other.access.suspend("w", "e", "again"))).kind, "invalid_input");
        world.open = Promise.resolve();
        const resumed = await parsed(other.access.resume("w", "e", {}, CALL));
        assert.deepEqual([resumed.status, resumed.result], ["completed", { a: 1, n: 2 }]);
        assert.equal(await status(one, "e"), "completed");
        assert.deepEqual(world.runs, heeds ? ["e:one", "e:one", "e:two"] : ["e:one", "e:two"]);
      });
    }

    const ASK = { resumeData: { ok: 1 }, options: { stepId: "ask" } };

    test("resume of a step that waits beside a timer in another process: it wins there, and both are told", async (t) => {
      const start = await processes(t, DEADLINE);
      const [one, other] = [await start(), await start()];
      const { began } = hold();
      const executed = one.access.execute("deadline", input("e"), CALL);
      await soon(began, "the timer");
      const seen = await other.access.state("deadline", "e");
      assert.deepEqual([seen.status, seen.suspension?.stepId], ["running", "ask"]);
      assert.equal((await refusal(other.access.resume("deadline", "e", {}, CALL))).kind, "not_found");
      const resumed = await parsed(soon(other.access.resume("deadline", "e", ASK, CALL), "the reply"));
      assert.deepEqual([resumed.status, resumed.result], ["completed", { yes: { a: 1, ok: 1 } }]);
      assert.deepEqual(await parsed(executed), resumed);
      assert.equal((await refusal(other.access.resume("deadline", "e", ASK, CALL))).kind, "not_found");
      assert.deepEqual(world.runs, ["e:timer"]);
      assert.deepEqual((await other.opened.engine.store.scan({ prefix: STOP_REQUESTS, limit: 9 })).length, 0);
    });

    test("resume of a step in another process, twice at the same time: one is carried out, the other is a conflict or too late", async (t) => {
      const start = await processes(t, DEADLINE);
      const [one, ...others] = [await start(), await start(), await start()];
      const { began } = hold();
      const executed = one!.access.execute("deadline", input("e"), CALL);
      await soon(began, "the timer");
      const resuming = Promise.allSettled(
        others.map(({ access }, index) =>
          access.resume("deadline", "e", { resumeData: { by: index }, options: { stepId: "ask" } }, CALL),
        ),
      );
      const replies = await soon(resuming, "the replies");
      const { result } = await parsed(executed);
      const taken = replies.findIndex(({ status }) => status === "fulfilled");
      assert.deepEqual(result, { yes: { a: 1, by: taken } });
      const refused = replies.flatMap((reply) => (reply.status === "rejected" ? [reply.reason.kind] : []));
      assert.equal(refused.length, 1);
      assert.match(refused[0], /^(conflict|not_found)$/);
    });

    test("resume of a step whose process is killed before it hears of it: the next process carries it out, once", async (t) => {
      const start = await processes(t, DEADLINE);
      let owner: ReturnType<typeof cutStore> | null = null;
      const one = await start((store) => {
        owner = cutStore(store);
        return owner;
      });
      const { began } = hold();
      one.access.execute("deadline", input("e"), CALL).catch(() => {});
      await soon(began, "the timer");
      owner!.arm(0);
      const other = await start();
      const resumed = await parsed(soon(other.access.resume("deadline", "e", ASK, CALL), "the reply"));
      assert.deepEqual([resumed.status, resumed.result], ["completed", { yes: { a: 1, ok: 1 } }]);
      const events = await collectEvents(await other.access.attach("deadline", "e", 0));
      assert.equal(events.filter(({ data }) => data.type === "workflow-start").length, 2, "resumed once");
    });

    test("cancel of an execution that another process runs, and of one that was suspended there", async (t) => {
      const start = await processes(t);
      const [one, other] = [await start(), await start()];
      const { began } = hold();
      const executed = one.access.execute("w", input("e"), CALL);
      await soon(began, "the step");
      const cancelled = await soon(other.access.cancel("w", "e", "no more"), "the cancel");
      assert.deepEqual([cancelled.status, cancelled.reason], ["cancelled", "no more"]);
      assert.equal((await parsed(executed)).status, "cancelled");
      assert.equal((await refusal(other.access.cancel("w", "e", undefined))).kind, "invalid_input");
      assert.equal((await parsed(one.access.execute("ask", input("f"), CALL))).status, "suspended");
      assert.equal((await other.access.cancel("ask", "f", undefined)).status, "cancelled");
      assert.equal(await status(one, "f", "ask"), "cancelled");
    });

    test("two that resume at once: one does, the other is told that there is nothing to resume", async (t) => {
      const start = await processes(t);
      const both = [await start(), await start()];
      world.open = Promise.resolve();
      world.runs = [];
      for (let round = 0; round < 5; round++) {
        await both[0]!.access.execute("ask", input(`e${round}`), CALL);
        const replies = await Promise.allSettled(both.map(({ access }) => access.resume("ask", `e${round}`, {}, CALL)));
        const refused = replies.filter((reply) => reply.status === "rejected").map((reply) => reply.reason.kind);
        assert.deepEqual(refused, ["not_found"]);
      }
      assert.equal(world.runs.length, 5);
    });

    test("what a killed process ran is taken over by another, which follows what it is asked meanwhile", async (t) => {
      const start = await processes(t);
      const stores: ReturnType<typeof cutStore>[] = [];
      const one = await start((store) => {
        stores.push(cutStore(store));
        return stores[0]!;
      });
      const other = await start();
      const { began, go } = hold();
      one.access.execute("w", input("e"), CALL).catch(() => {});
      one.access.execute("w", input("f"), CALL).catch(() => {});
      await soon(began, "the step");
      await until("both", async () => world.runs.length === 2);
      stores[0]!.arm(0);
      const suspending = other.access.suspend("w", "f", "enough");
      await until("the take-over", async () => world.runs.filter((key) => key === "e:one").length === 2);
      assert.equal((await soon(suspending, "the suspension")).status, "suspended");
      go();
      await until("the end", async () => (await status(other, "e")) === "completed");
      assert.deepEqual(
        world.runs.filter((key) => key.startsWith("e")),
        ["e:one", "e:one", "e:two"],
      );
    });

    test("a process that was given up, and is alive, cannot write any more: it gives its executions up, and its streams go on", async (t) => {
      const start = await processes(t);
      let silentNow = false;
      const mute = (store: Store): Store => ({
        ...bound(store),
        commit: (commit: Commit) =>
          silentNow && commit.put?.[0]?.[0].startsWith("xp/")
            ? Promise.reject(unavailable("away"))
            : store.commit(commit),
      });
      const { logger, lines } = recordingLogger();
      const one = await start(mute, logger);
      const other = await start();
      const { began, go } = hold();
      const executed = refusal(one.access.execute("w", input("e"), CALL));
      await soon(began, "the step");
      const following = collectEvents(await one.access.attach("w", "e", 0));
      silentNow = true;
      await until("the take-over", async () => world.runs.length === 2);
      silentNow = false;
      go();
      const { kind, facts } = await soon(executed, "the refusal");
      assert.deepEqual([kind, facts?.executionId], ["unavailable", "e"]);
      const followed = await soon(following, "the end of the stream");
      await until("the end", async () => (await status(one, "e")) === "completed");
      assert.equal(await status(other, "e"), "completed");
      assert.deepEqual((await other.access.state("w", "e")).status, "completed");
      const events = await collectEvents(await other.access.attach("w", "e", 0));
      assert.deepEqual(followed, events, "a stream goes on with what the other process does");
      assert.deepEqual(
        events.filter(({ data }) => data.type === "step-complete").map(({ data }) => data.from),
        ["one", "two"],
      );
      assert.ok(
        lines.some((line) => /another process has recovered this execution/.test(line)),
        lines.join("\n"),
      );
    });

    test("what a process runs that has only just begun is not taken from it", async (t) => {
      const start = await processes(t);
      let meanwhile: (() => Promise<void>) | null = null;
      await start((store) => ({
        ...bound(store),
        async scan(range) {
          const once = range.prefix === "xo/" ? meanwhile : null;
          if (once !== null) meanwhile = null;
          await once?.();
          return store.scan(range);
        },
      }));
      const { began, go } = hold();
      const executed = new Promise<unknown>((resolve, reject) => {
        meanwhile = async () => {
          const late = await start();
          parsed(late.access.execute("w", input("e"), CALL)).then(resolve, reject);
          await began;
        };
      });
      await soon(began, "the step");
      await new Promise((resolve) => setTimeout(resolve, 100));
      go();
      await executed;
      assert.deepEqual(world.runs, ["e:one", "e:two"]);
    });

    test("a process whose clock is behind by an hour is not taken for dead", async (t) => {
      const start = await processes(t);
      const late = (value: string) => JSON.stringify({ ...JSON.parse(value), at: JSON.parse(value).at - 3_600_000 });
      const one = await start((store) => ({
        ...bound(store),
        commit: ({ put, ...rest }) =>
          store.commit({
            ...rest,
            ...(put && { put: put.map(([key, value]) => [key, key.startsWith("xp/") ? late(value) : value] as const) }),
          }),
      }));
      await start();
      const { began, go } = hold();
      const executed = one.access.execute("w", input("e"), CALL);
      await soon(began, "the step");
      await new Promise((resolve) => setTimeout(resolve, TIMES.leaseTimeout));
      go();
      assert.equal((await parsed(executed)).status, "completed");
      assert.deepEqual(world.runs, ["e:one", "e:two"]);
    });

    for (const minutes of [10, -10])
      test(`what a killed process ran whose clock was ten minutes ${minutes > 0 ? "ahead" : "behind"} is taken over like that of any other`, async (t) => {
        const start = await processes(t);
        const cuts: ReturnType<typeof cutStore>[] = [];
        const one = await start((store) => {
          const commit: Store["commit"] = ({ put, ...rest }) =>
            store.commit({
              ...rest,
              ...(put && { put: put.map(([key, value]) => [key, shift(key, value)] as const) }),
            });
          const shift = (key: string, value: string) => {
            if (!key.startsWith("xp/")) return value;
            const heartbeat = JSON.parse(value);
            return JSON.stringify({ ...heartbeat, at: heartbeat.at + minutes * 60_000 });
          };
          cuts.push(cutStore({ ...bound(store), commit }));
          return cuts[0]!;
        });
        const other = await start();
        const { began, go } = hold();
        one.access.execute("w", input("e"), CALL).catch(() => {});
        await soon(began, "the step");
        cuts[0]!.arm(0);
        await until("the take-over", async () => world.runs.length === 2);
        go();
        await until("the end", async () => (await status(other, "e")) === "completed");
      });

    test("an execution whose plugin a process does not have is left to one that has it, and can be cancelled meanwhile", async (t) => {
      const view = await open(t);
      const whole = await processesOf(t, MANIFEST, { plugins: PLUGINS });
      const older = { workflows: { w: { steps: [{ id: "one", andThen: { set: { n: 1 } } }] } } };
      const old = await processesOf(t, older);
      const { logger, lines } = recordingLogger();
      const killed = cutStore(await view());
      const one = await whole(killed, { processTimes: TIMES });
      const other = await old(await view(), { processTimes: TIMES, logger });
      t.after(() => other.opened.close());
      const { go } = hold();
      for (const id of ["e", "f"]) one.access.execute("w", input(id), CALL).catch(() => {});
      await until("the steps", async () => world.runs.length === 2);
      killed.arm(0);
      const left = () => lines.filter((line) => /is left to other processes: .*step plugin "pause"/.test(line)).length;
      await until("that it leaves both alone", async () => left() === 2);
      assert.equal(await status(other, "e"), "running");
      const cancelled = await soon(other.access.cancel("w", "f", "no more"), "the cancel");
      assert.deepEqual([cancelled.status, cancelled.reason], ["cancelled", "no more"]);
      const next = await whole(await view(), { processTimes: TIMES });
      t.after(() => next.opened.close());
      await until("the take-over", async () => world.runs.filter((key) => key === "e:one").length === 2);
      go();
      await until("the end", async () => (await status(next, "e")) === "completed");
      assert.deepEqual([await status(next, "f"), left()], ["cancelled", 2], "and it says so once for each");
    });

    test("GET /workflows and /workflows/:id say running for what another process runs, and idle when that has ended", async (t) => {
      const start = await processes(t);
      const [one, other] = [await start(), await start()];
      const { engine } = other.opened;
      const statuses = async () =>
        JSON.parse((await engine.list()).json).map(
          ({ id, status }: { id: string; status: string }) => `${id} ${status}`,
        );
      assert.deepEqual(await statuses(), ["w idle", "ask idle"]);
      const { began, go } = hold();
      const executed = one.access.execute("w", input("e"), CALL);
      await soon(began, "the step");
      await until("the status", async () => (await statuses())[0] === "w running");
      assert.deepEqual([(await engine.detail("w")).status, (await engine.detail("ask")).status], ["running", "idle"]);
      go();
      await executed;
      await until("the status", async () => (await statuses())[0] === "w idle");
      assert.equal((await engine.detail("w")).status, "idle");
    });

    test("a process that others have taken for gone begins no other try of what it ran, and tells its steps to stop", async (t) => {
      const start = await processes(t);
      const silence = { now: false };
      const one = await start(silenced(silence));
      await start();
      const { began, go } = hold();
      const executed = refusal(one.access.execute("w", input("e"), CALL));
      await soon(began, "the step");
      silence.now = true;
      await until("the take-over", async () => world.runs.length === 2);
      silence.now = false;
      // The step has not ended: it hears that it has to stop.
      assert.equal((await soon(executed, "the refusal")).kind, "unavailable");
      go();
    });

    test("GET .../executions/:executionId/state at a process that was taken for gone says what another one has made of it, while its own step still ignores that it has to stop", async (t) => {
      const start = await processes(t);
      const silence = { now: false };
      const one = await start(silenced(silence));
      const other = await start();
      const { began, go } = hold();
      world.heeds = false;
      const executed = refusal(one.access.execute("w", input("e"), CALL));
      await soon(began, "the step");
      const told = new Promise<void>((resolve) => {
        world.aborted = resolve;
      });
      world.open = Promise.resolve();
      silence.now = true;
      await until("the end at the other one", async () => (await status(other, "e")) === "completed");
      silence.now = false;
      await soon(told, "that the step has to stop");
      assert.equal(one.opened.engine.live.size, 1, "the step has not stopped");
      assert.equal(await status(one, "e"), "completed");
      go();
      await soon(executed, "the refusal");
    });

    test("an execution whose start happened while nobody heard of it goes on all the same", async (t) => {
      const start = await processes(t);
      let deaf = false;
      const one = await start((store) => ({
        ...bound(store),
        async commit(commit) {
          const revision = await store.commit(commit);
          if (deaf && commit.put?.[0]?.[0].startsWith("xo/")) throw unavailable("away");
          return revision;
        },
      }));
      hold().go();
      deaf = true;
      assert.equal((await refusal(one.access.execute("w", input("e"), CALL))).kind, "unavailable");
      deaf = false;
      await until("the end", async () => (await status(one, "e")) === "completed");
      assert.deepEqual(world.runs, ["e:one", "e:two"]);
    });

    test("a process that stops leaves what it runs to the others at once", async (t) => {
      const start = await processes(t);
      const [one, other] = [await start(), await start()];
      const { began, go } = hold();
      const executed = refusal(one.access.execute("w", input("e"), CALL));
      await soon(began, "the step");
      await one.opened.close();
      assert.equal((await executed).kind, "unavailable");
      await until("the take-over", async () => world.runs.length === 2);
      go();
      await until("the end", async () => (await status(other, "e")) === "completed");
    });
  });
}

/** A store to which heartbeats do not come while it is silent. */
const silenced =
  (silence: { readonly now: boolean }) =>
  (store: Store): Store => ({
    ...bound(store),
    commit: (commit: Commit) =>
      silence.now && commit.put?.[0]?.[0].startsWith("xp/")
        ? Promise.reject(unavailable("away"))
        : store.commit(commit),
  });

/** Its methods, free to be spread. */
const bound = (store: Store): Store => ({
  kind: store.kind,
  get: (key) => store.get(key),
  getMany: (keys) => store.getMany(keys),
  scan: (range) => store.scan(range),
  tail: (tail) => store.tail(tail),
  commit: (commit) => store.commit(commit),
  problem: () => store.problem(),
  close: () => store.close(),
});
