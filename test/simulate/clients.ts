/**
 * Clients of a simulation. Each does one thing, through whatever process answers, tries again where nothing came back, and knows in the
 * end what must be true. None of them gives up: a service that leaves them between two states is found by that.
 */
import type { Random } from "../fuzz/random.ts";
import type { InjectedReply } from "../support/inject.ts";
import type { Left } from "./earlier.ts";
import type { Simulation } from "./simulation.ts";

// biome-ignore lint/suspicious/noExplicitAny: replies of many shapes
type Loose = any;

interface Asked {
  readonly method?: string;
  readonly body?: unknown;
  readonly user?: string;
  readonly key?: string | undefined;
  readonly headers?: Record<string, string>;
  /** Milliseconds after which it leaves. */
  readonly patience?: number;
  readonly onChunk?: (chunk: Buffer) => void;
  /** The service to which it goes; default: as the client goes. */
  readonly service?: number;
}

interface Reply {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly data: Loose;
  /** The whole body, where it is JSON. */
  readonly json: Loose;
  readonly text: string;
}

/** So long a client waits for an answer. */
const PATIENCE_MS = 40_000;
/** Where nothing was wrong for so long, there is an answer by then. */
const SETTLED_MS = 20_000;
/** So soon a stream ends after what it tells. */
const LATE_MS = 15_000;
/** The last event of a run. */
const LAST = /^\{"type":"(finish|abort|error)"/;
/** The event of a stream that cannot go on. Without a number it is none of the run: its reader comes back for those. */
const FAILED = /^\{"type":"error"/;
const ENDED = new Set(["completed", "error", "cancelled"]);
const CONSOLE = { "x-console-access-key": "the-key-of-the-console" };

class Client {
  readonly sim: Simulation;
  /** No two clients have the same: the things that it makes are called so. */
  readonly key: string;
  readonly user: string;
  readonly random: Random;
  /** The service to which it goes until that cannot answer; null where each request goes to any of them. */
  #home: number | null = null;
  /** When it saw the end of what it reads. */
  ended = Number.POSITIVE_INFINITY;
  /** What it has begun in an earlier release, with the same key. */
  readonly left: Left | undefined;

  constructor(sim: Simulation, number: number, left?: Left) {
    this.sim = sim;
    this.left = left;
    this.random = sim.world.random(`client ${number}`);
    this.user = left?.user ?? `user-${1 + this.random.below(2)}`;
    this.key = left?.key ?? `k${number}-${this.user}`;
    if (this.chance(0.3)) this.#home = this.random.below(sim.services.length);
  }

  chance(probability: number): boolean {
    return this.random.chance(probability);
  }

  pause(most: number): Promise<void> {
    return this.sim.world.sleep(this.random.next() * most);
  }

  /** Null when nothing came back: the connection was lost, or the client has left. */
  async ask(
    path: string,
    { method, body, user = this.user, key, headers = {}, patience = PATIENCE_MS, onChunk, service }: Asked = {},
  ): Promise<Reply | null> {
    await this.pause(3);
    const { services } = this.sim;
    const to = service ?? this.#home ?? this.random.below(services.length);
    const sent = { authorization: `Bearer ${user}`, ...(key !== undefined && { "idempotency-key": key }), ...headers };
    const request = { path, headers: sent, body, ...(method !== undefined && { method }), ...(onChunk && { onChunk }) };
    const reply = await this.sim.request(to, request, patience);
    // As a balancer does: what waits is not sent elsewhere.
    if (this.#home !== null && reply !== null && reply.status >= 500) this.#home = (this.#home + 1) % services.length;
    this.sim.world.trace(
      `${this.key} ${method ?? (body === undefined ? "GET" : "POST")} ${path}: ${reply?.status ?? "nothing"}`,
    );
    return reply === null ? null : readReply(reply);
  }

  /** Asks until an answer says what came of it: neither nothing, nor that it may be tried again. */
  async insist(path: string, asked: Asked = {}): Promise<Reply> {
    const { world } = this.sim;
    for (;;) {
      const begun = world.now;
      const reply = await this.ask(path, asked);
      if (reply !== null && reply.status < 500 && reply.status !== 429) return reply;
      const isLate = reply === null && world.now - begun >= PATIENCE_MS;
      this.require(!isLate || this.sim.wasFaulty(world.now - SETTLED_MS), () => `${path} is not answered`);
      await this.pause(1_500);
    }
  }

  /** Looks until it is so. */
  async until(path: string, isSo: (reply: Reply) => boolean, asked: Asked = {}): Promise<Reply> {
    for (;;) {
      const reply = await this.insist(path, asked);
      if (isSo(reply)) return reply;
      await this.sim.world.sleep(500 + this.random.below(1_500));
    }
  }

  /** What has ended has ended for all processes, also for one that is cut off. */
  async requireEnded(path: string, asked: Asked = {}): Promise<void> {
    for (let times = 0; times < 3; times++) {
      const { data, text } = await this.insist(path, asked);
      this.require(ENDED.has(data?.status), () => `what had ended is ${text}`);
    }
  }

  readonly require = (condition: boolean, complaint: () => string): void => {
    this.sim.world.require(condition, () => `${this.key}: ${complaint()}`);
  };

  /** Another user than its own. */
  get stranger(): string {
    return this.user === "user-1" ? "user-2" : "user-1";
  }

  /** Answers a question: once, twice, both ways at once, or while somebody tries who may not. @returns what was decided */
  async answer(approvalId: string): Promise<boolean> {
    const path = `/approvals/${approvalId}`;
    if (this.chance(0.3)) {
      const other = await this.ask(path, {
        body: { approved: true },
        user: this.stranger,
      });
      if (other !== null && other.status < 500)
        this.require(other.status === 404, () => `another user answers ${other.text}`);
    }
    const approved = this.chance(0.6);
    const leaves = this.chance(0.3);
    const says = async (answer: boolean) => {
      const body = { approved: answer };
      if (leaves && (await this.ask(path, { body, patience: 20 })) === null) {
        // It comes back, and sees what was decided.
        await this.pause(4_000);
        for (const status of ["approved", "denied"]) {
          const { data } = await this.insist(`/approvals?status=${status}&limit=100`);
          if (data.some((decided: Loose) => decided.approvalId === approvalId)) return status === "approved";
        }
      }
      const reply = await this.insist(path, { body });
      return reply.status === 200 ? answer : reply.status === 409 ? null : reply.text;
    };
    const answers = await Promise.all([says(approved), ...(this.chance(0.4) ? [says(this.chance(0.5))] : [])]);
    const taken = new Set(answers.filter((answer) => answer !== null));
    this.require(taken.size === 1, () => `the answers to a question give ${JSON.stringify(answers)}`);
    return [...taken][0] === true;
  }

  /** Reads a stream of events to its end, with absences. Every event comes once, in its order, and is the same whenever it is read. */
  async follow(path: string, isEnded: () => Promise<boolean>, rests = true): Promise<Map<number, string>> {
    const { world } = this.sim;
    const events = new Map<number, string>();
    let last = 0;
    for (;;) {
      let text = "";
      let hasFailed = false;
      const onChunk = (chunk: Buffer) => {
        text += chunk.toString();
        for (let end = text.indexOf("\n\n"); end !== -1; end = text.indexOf("\n\n")) {
          const block = text.slice(0, end);
          text = text.slice(end + 2);
          const id = /^id: (\d+)$/m.exec(block)?.[1];
          const data = /^data: (.*)$/m.exec(block)?.[1];
          if (data !== undefined && FAILED.test(data)) hasFailed = true;
          if (id === undefined && FAILED.test(data ?? "")) hasFailed = true;
          if (id === undefined || data === undefined) continue;
          const number = Number(id);
          this.require(number === last + 1, () => `${path}: event ${number} comes after ${last}: ${data}`);
          last = number;
          events.set(number, data);
        }
      };
      const hadEnded = await isEnded();
      const headers: Record<string, string> = last > 0 ? { "last-event-id": String(last) } : {};
      const patience = hadEnded ? 20_000 : 500 + this.random.below(this.chance(0.2) ? 60_000 : 20_000);
      const begun = world.now;
      const reply = await this.ask(path, { headers, onChunk, patience });
      const isFaulty = this.sim.wasFaulty(begun);
      if (!rests && reply?.status === 200)
        this.require(
          isFaulty || hasFailed || LAST.test(events.get(last) ?? ""),
          () => `${path} is over after ${events.get(last)}`,
        );
      const ended = Math.max(begun, this.ended);
      this.require(isFaulty || world.now - ended < LATE_MS, () => `${path} goes on after what it tells has ended`);
      if (hadEnded && reply?.status === 200 && !hasFailed) return events;
      await this.pause(1_500);
    }
  }

  /** What a second reader reads is what the first one has read. */
  async requireSame(path: string, first: ReadonlyMap<number, string>): Promise<void> {
    const again = await this.follow(path, async () => true);
    for (const [number, data] of first)
      this.require(
        again.get(number) === data,
        () => `${path}: event ${number} was ${data} and is ${again.get(number)}`,
      );
    this.require(again.size === first.size, () => `${path}: ${first.size} events were read, then ${again.size}`);
  }
}

function readReply({ status, headers, text }: InjectedReply): Reply {
  const body = text();
  const json = headers["content-type"]?.startsWith("application/json") ? JSON.parse(body) : undefined;
  return { status, headers, data: json?.data, json, text: body.slice(0, 500) };
}

/** A run that has ended has called its tools, those that ask only where a person has approved. */
function requireWork({ sim, key, require }: Client, tool: string, approved: boolean | null): void {
  const [acted, paid] = [sim.effects("act", key), sim.effects("pay", key)];
  if (tool !== "pay") require(acted.length > 0, () => "a run has ended whose tool never worked");
  if (tool !== "act") require(approved !== null, () => "a tool that asks was not asked for");
  if (approved === true) require(paid.length > 0, () => "a call was approved and never ran");
  if (approved !== true) require(sim.effects("pay begins", key).length === 0, () => "a call ran that was not approved");
}

/** The question of a client's run as soon as it is listed: whoever asks may not wait for the answer yet. */
async function open(client: Client): Promise<string> {
  for (;;) {
    const { data } = await client.insist("/approvals?limit=100");
    const found = data.find(({ input, status }: Loose) => input?.what === client.key && status === "open");
    if (found !== undefined) return found.approvalId;
    await client.sim.world.sleep(50 + client.random.below(300));
  }
}

/** A run in the background whose tool works, and one whose tool asks first. */
async function run(client: Client): Promise<void> {
  const { sim, key, left } = client;
  const tool = left?.choice ?? client.random.pick(["act", "pay", "both"]);
  const idempotency = client.chance(0.5) ? key : undefined;
  const begin = () =>
    client.insist("/agents/worker/text", {
      body: { input: `${tool} ${key}`, options: { background: true, runId: key } },
      key: idempotency,
    });
  const [begun] = await Promise.all([begin(), ...(client.chance(0.3) ? [begin()] : [])]);
  // Its own id is taken by the try of which it has not heard.
  client.require([202, 409].includes(begun.status), () => `a run begins with ${begun.text}`);
  const path = `/agents/worker/runs/${key}`;
  const isEnded = async () => ENDED.has((await client.insist(path)).data?.status);
  const following = client.chance(0.6) ? client.follow(`${path}/stream`, isEnded, tool !== "act") : null;
  if (client.chance(0.3)) {
    const foreign = await client.ask(path, { user: client.stranger });
    if (foreign !== null && foreign.status < 500)
      client.require(foreign.status === 404, () => `another user sees ${foreign.text}`);
  }
  const cancels = client.chance(0.15) || left?.isCancelled === true;
  if (cancels) {
    await client.pause(4_000);
    const reply = await client.insist(`${path}/cancel`, { body: {} });
    const isTold = reply.status === 200;
    const state = await client.until(path, ({ data }) => ENDED.has(data?.status));
    if (isTold) client.require(state.data.status !== "error", () => `a cancelled run ends with ${state.text}`);
  } else {
    let approved = left?.approved ?? null;
    if (tool !== "act" && approved === null && client.chance(0.4)) approved = await client.answer(await open(client));
    else {
      const state = await client.until(path, ({ data }) => ENDED.has(data?.status) || data?.approvals?.length > 0);
      if (!ENDED.has(state.data.status)) {
        await client.pause(5_000);
        approved = await client.answer(state.data.approvals[0].approvalId);
      }
    }
    const end = await client.until(path, ({ data }) => ENDED.has(data?.status));
    client.ended = sim.world.now;
    client.require(end.data.status === "completed", () => `a run ends with ${end.text}`);
    requireWork(client, tool, approved);
  }
  await client.requireEnded(path);
  for (const kind of ["act begins", "pay begins"]) sim.requireOneCall(kind, key);
  if (following !== null) await client.requireSame(`${path}/stream`, await following);
}

/** The codes of A2A's errors. */
const TASK_NOT_FOUND = -32001;
const NOT_CANCELABLE = -32002;
const INTERNAL = -32603;
const OVER = /_(COMPLETED|FAILED|CANCELED|REJECTED)$/;

/** The same as `run` through A2A: a message is one task, however often it is sent. */
async function task(client: Client): Promise<void> {
  const { sim, key, require, left } = client;
  const tool = left?.choice ?? client.random.pick(["act", "pay", "both"]);
  const ask = (method: string, params: object, more: Asked = {}) =>
    client.insist("/a2a/worker", {
      body: { jsonrpc: "2.0", id: 1, method, params },
      headers: { "a2a-version": "1.0" },
      ...more,
    });
  /** Asks until the answer is not that the service cannot answer now. */
  const call = async (method: string, params: object, more: Asked = {}): Promise<Loose> => {
    for (;;) {
      const { json, text } = await ask(method, params, more);
      require(!/internal error/.test(text), () => `${method} is answered ${text}`);
      if (json?.error?.code !== INTERNAL) return json;
      await client.pause(1_500);
    }
  };
  const result = async (...asked: Parameters<typeof call>): Promise<Loose> => {
    const { result: given, error } = await call(...asked);
    require(error === undefined, () => `${asked[0]} is refused: ${JSON.stringify(error)}`);
    return given;
  };
  const send = async () => {
    const message = { messageId: key, role: "ROLE_USER", parts: [{ text: `${tool} ${key}` }] };
    const configuration = { returnImmediately: client.chance(0.7) };
    return (await result("SendMessage", { message, configuration }, { patience: 8_000 })).task.id as string;
  };
  const ids = await Promise.all([send(), ...(client.chance(0.3) ? [send()] : [])]);
  const id = ids[0]!;
  require(new Set(ids).size === 1, () => `one message has begun several tasks: ${ids}`);
  const state = async () => (await result("GetTask", { id })).status.state as string;
  const reading = client.chance(0.5) ? subscribe() : null;
  if (client.chance(0.3)) {
    const { error } = await call("GetTask", { id }, { user: client.stranger });
    require(error?.code === TASK_NOT_FOUND, () => `another user sees a task: ${JSON.stringify(error)}`);
  }
  const path = `/agents/worker/runs/${id}`;
  if (client.chance(0.15)) {
    await client.pause(4_000);
    const { result: cancelled, error } = await call("CancelTask", { id });
    require(error === undefined || error.code === NOT_CANCELABLE, () =>
      `a task is not cancelled: ${JSON.stringify(error)}`);
    const end = await untilOver();
    // A try whose answer was lost may have cancelled it: the next one hears that it has ended.
    if (cancelled !== undefined) require(end === "TASK_STATE_CANCELED", () => `a cancelled task ends ${end}`);
  } else {
    const question = await (left === undefined ? asked() : askedEarlier());
    let approved: boolean | null = null;
    if (question !== undefined) {
      await client.pause(5_000);
      approved = await client.answer(question);
    }
    const end = await untilOver();
    const expected = left?.isLost === true ? "TASK_STATE_FAILED" : "TASK_STATE_COMPLETED";
    require(end === expected, () => `a task ends ${end}`);
    if (end === "TASK_STATE_COMPLETED") requireWork(client, tool, approved);
  }
  const end = await state();
  const again = await send();
  require(again === id && (await state()) === end, () => `a message that has a task of state ${end} begins ${again}`);
  for (const kind of ["act begins", "pay begins"]) sim.requireOneCall(kind, key);
  await reading;

  /** What its run asks, unless that ends. */
  async function asked(): Promise<string | undefined> {
    const { data } = await client.until(
      path,
      (reply) => ENDED.has(reply.data?.status) || reply.data?.approvals?.length > 0,
    );
    return data.approvals[0]?.approvalId;
  }

  /** The same of a task that is no run yet. */
  async function askedEarlier(): Promise<string | undefined> {
    for (;;) {
      const now = await state();
      if (OVER.test(now)) return undefined;
      if (now === "TASK_STATE_INPUT_REQUIRED") return open(client);
      await sim.world.sleep(500 + client.random.below(1_500));
    }
  }

  async function untilOver(): Promise<string> {
    for (;;) {
      const now = await state();
      if (OVER.test(now)) return now;
      await sim.world.sleep(500 + client.random.below(1_500));
    }
  }

  /** Reads what is told of a task, with absences: nothing comes after its end. */
  async function subscribe(): Promise<void> {
    let isOver = false;
    while (!isOver) {
      let text = "";
      const onChunk = (chunk: Buffer) => {
        text += chunk.toString();
        for (let end = text.indexOf("\n\n"); end !== -1; end = text.indexOf("\n\n")) {
          const told = /"state":"(\w+)"/.exec(text.slice(0, end))?.[1];
          text = text.slice(end + 2);
          require(!isOver || told === undefined, () => `a task is told to be ${told} after its end`);
          if (told !== undefined) isOver = OVER.test(told);
        }
      };
      const reply = await ask("SubscribeToTask", { id }, { onChunk, patience: 500 + client.random.below(20_000) });
      // There is nothing to follow of a task that has ended.
      if (reply.json?.error !== undefined && reply.json.error.code !== INTERNAL) isOver = OVER.test(await state());
      await client.pause(1_500);
    }
  }
}

/** The steps of the workflows that work before and after the one that waits, and whether that one waits for an approval. */
const WORKFLOWS: Record<string, { before: string[]; after: string[]; asks: boolean }> = {
  chain: { before: ["one", "two"], after: ["three"], asks: false },
  paying: { before: ["before"], after: ["after"], asks: true },
  asking: { before: ["left", "right"], after: ["last"], asks: true },
};

/** A workflow with steps, a step that fails at first and a question, or one whose tool a person must approve. */
async function workflow(client: Client): Promise<void> {
  const { sim, key, left } = client;
  const name = left?.choice ?? client.random.pick(Object.keys(WORKFLOWS));
  const { before, after, asks } = WORKFLOWS[name]!;
  const begin = (more: object = {}) =>
    client.insist(`/workflows/${name}/execute`, {
      body: { input: { what: key }, options: { executionId: key, background: true } },
      ...more,
    });
  const idempotency = client.chance(0.5) ? key : undefined;
  const [begun] = await Promise.all([
    begin({ key: idempotency }),
    ...(client.chance(0.3) ? [begin({ key: idempotency })] : []),
  ]);
  client.require([202, 409].includes(begun.status), () => `an execution begins with ${begun.text}`);
  const path = `/workflows/${name}/executions/${key}`;
  const state = `${path}/state?userId=${client.user}`;
  const isEnded = async () => ENDED.has((await client.insist(state, { headers: CONSOLE })).data?.status);
  const following = client.chance(0.6) ? client.follow(`${path}/stream`, isEnded) : null;
  const look = (isSo: (data: Loose) => boolean) =>
    client.until(state, ({ data }) => data !== undefined && isSo(data), { headers: CONSOLE });
  if (client.chance(0.15)) {
    await client.pause(4_000);
    const reply = await client.insist(`${path}/cancel`, { body: {} });
    const { data } = await look(({ status }) => ENDED.has(status));
    if (reply.status === 200)
      client.require(data.status === "cancelled", () => `a cancelled execution ends ${data.status}`);
    if (following !== null) await client.requireSame(`${path}/stream`, await following);
    return;
  }
  const approved = left?.approved ?? (await goOn());
  const { data } = await look(({ status }) => ENDED.has(status));
  await client.requireEnded(state, { headers: CONSOLE });
  // A model is told of a no, a step fails with it.
  const expected = approved || name === "asking" ? "completed" : "error";
  client.require(data.status === expected, () => `an execution ends with ${JSON.stringify(data).slice(0, 300)}`);
  for (const step of expected === "completed" ? [...before, ...after] : before) {
    client.require(sim.effects(step, key).length > 0, () => `step ${step} never ran`);
    sim.requireOneCall(`${step} begins`, key, step === "two" ? 2 : 1);
  }
  if (asks) {
    sim.requireOneCall("pay begins", key);
    const paid = sim.effects("pay begins", key).length > 0;
    client.require(paid === approved, () => `approved: ${approved}, and paid: ${paid}`);
  }
  if (following !== null) await client.requireSame(`${path}/stream`, await following);

  /** Once it waits. @returns whether a person says yes */
  async function goOn(): Promise<boolean> {
    const waits = await look(({ status }) => ENDED.has(status) || status === "suspended");
    client.require(waits.data.status === "suspended", () => `an execution does not wait: ${waits.text}`);
    await client.pause(5_000);
    for (const step of after)
      client.require(sim.effects(`${step} begins`, key).length === 0, () => `step ${step} ran before its time`);
    if (asks) return client.answer(waits.data.suspension.suspendData.approvalId);
    const resumeKey = client.chance(0.5) ? `${key}-resume` : undefined;
    const resume = () =>
      client.insist(`${path}/resume`, {
        body: { resumeData: {}, options: { stepId: "ask" } },
        key: resumeKey,
        patience: 8_000,
      });
    await Promise.all([resume(), ...(client.chance(0.3) ? [resume()] : [])]);
    return true;
  }
}

/** An execution that ends in time only because it is cancelled, whoever has it by then. */
async function cancel(client: Client): Promise<void> {
  const { sim, key } = client;
  const path = "/workflows/long";
  const begun = await client.insist(`${path}/execute`, {
    body: { input: { what: key }, options: { executionId: key, background: true } },
  });
  client.require([202, 409].includes(begun.status), () => `an execution begins with ${begun.text}`);
  await client.pause(8_000);
  await client.insist(`${path}/executions/${key}/cancel`, { body: {} });
  const state = `${path}/executions/${key}/state?userId=${client.user}`;
  const { data } = await client.until(state, (reply) => ENDED.has(reply.data?.status), { headers: CONSOLE });
  client.require(data.status === "cancelled", () => `a cancelled execution ends ${data.status}`);
  client.require(sim.effects("long", key).length === 0, () => "a cancelled step has worked to its end");
}

/** A call of a tool with a key, several times: one of them works. */
async function once(client: Client): Promise<void> {
  const { sim, key } = client;
  const body = { input: { what: key, milliseconds: 400 } };
  const call = () => client.insist("/tools/act/execute", { body, key, patience: 8_000 });
  const first = await Promise.all(Array.from({ length: 1 + client.random.below(3) }, call));
  await client.pause(3_000);
  const replies = [...first, await call()];
  for (const reply of replies) client.require(reply.status === 200, () => `a call is answered ${reply.text}`);
  // A process that was cut off answers what it has done, and others did it again.
  const executions = Math.max(sim.effects("act", key).length, 1);
  client.require(
    new Set(replies.map(({ text }) => text)).size <= executions,
    () => `one key has several replies: ${replies.map(({ text }) => text)}`,
  );
  client.require(sim.effects("act", key).length > 0, () => "a call was answered that never worked");
  sim.requireOneCall("act begins", key);
  // Each of them knows the reply, or waits for no one.
  sim.atRest.push(async () => {
    for (const service of sim.services.keys()) {
      const reply = await client.ask("/tools/act/execute", { body, key, service });
      client.require(reply?.status === 200, () => `a call is answered ${reply?.text ?? "by nothing"}`);
    }
  });
  const other = await client.insist("/tools/act/execute", { body: { input: { what: `${key}-other` } }, key });
  client.require(other.status === 422, () => `another call under the same key is answered ${other.text}`);
}

/** A call that a person must approve, made by the client itself. */
async function direct(client: Client): Promise<void> {
  const { sim, key } = client;
  const call = (headers = {}) =>
    client.insist("/tools/pay/execute", { body: { input: { what: key } }, headers, patience: 8_000 });
  const asked = await call();
  const approvalId = asked.headers["x-approval-id"];
  client.require(asked.status === 409 && approvalId !== undefined, () => `a call is not asked about: ${asked.text}`);
  await client.pause(2_000);
  if (client.chance(0.3)) {
    const early = await call({ "x-approval-id": approvalId! });
    client.require(early.status === 409, () => `a call that nobody has answered is answered ${early.text}`);
  }
  const approved = await client.answer(approvalId!);
  const made = await Promise.all(
    Array.from({ length: 1 + client.random.below(2) }, () => call({ "x-approval-id": approvalId! })),
  );
  const done = made.filter(({ status }) => status === 200).length;
  client.require(
    done <= (approved ? 1 : 0),
    () => `approved: ${approved}, and answered ${made.map(({ status }) => status)}`,
  );
  client.require(
    sim.effects("pay begins", key).length <= (approved ? 1 : 0),
    () => `approved: ${approved}, and called ${sim.effects("pay begins", key).length} times`,
  );
  client.require(sim.effects("pay", key).length >= done, () => "a call was answered that never worked");
}

/**
 * A turn that asks goes on by itself once it is answered. Where the question could not be looked for, its model was told that the call has
 * failed: the run is not kept yet.
 */
async function settle(client: Client, { data }: Reply, what: string, begun: number): Promise<void> {
  const asked = data.approvals?.[0];
  if (asked === undefined) {
    const isAway = client.sim.database.failed >= begun;
    client.require(isAway, () => `a turn does not ask: ${JSON.stringify(data)}`);
    return client.require(client.sim.effects("pay begins", what).length === 0, () => `nobody was asked about ${what}`);
  }
  const approved = await client.answer(asked.approvalId);
  const end = await client.until(`/agents/friend/runs/${data.runId}`, ({ data: run }) => ENDED.has(run?.status));
  client.require(end.data.status === "completed", () => `a run ends with ${end.text}`);
  const paid = client.sim.effects("pay begins", what).length > 0;
  client.require(paid === approved, () => `approved: ${approved}, and paid: ${paid}`);
  client.sim.requireOneCall("pay begins", what);
}

/** Turns of one conversation, which keeps what was acknowledged, until it is deleted. */
async function talk(client: Client): Promise<void> {
  const { key, user } = client;
  const said: string[] = [];
  const begun = client.sim.world.now;
  const path = `/api/memory/conversations/${key}`;
  const tell = (input: string) =>
    client.insist("/agents/friend/text", {
      body: { input, options: { memory: { conversationId: key, userId: user } } },
      key: input.replaceAll(" ", "-"),
    });
  for (let turn = 0, turns = 1 + client.random.below(4); turn < turns; turn++) {
    const say = async (input: string) => {
      const reply = await tell(input);
      client.require(reply.status === 200, () => `a turn is answered ${reply.text}`);
      return reply;
    };
    const input = `hello ${key} ${turn}`;
    // Another turn of the conversation at the same time comes before or behind it.
    const beside = client.chance(0.2) ? say(`beside ${key} ${turn}`) : null;
    await say(input);
    await beside;
    said.push(input);
    if (client.chance(0.2)) await settle(client, await say(`pay ${key}-${turn}`), `${key}-${turn}`, begun);
    await client.pause(2_000);
    const { data } = await client.insist(`${path}/messages`);
    const texts = (role: string) =>
      data.messages
        .filter((message: Loose) => message.role === role)
        .map(({ parts }: Loose) => parts.find((part: Loose) => part.type === "text")?.text);
    const questions: string[] = texts("user");
    const answers: string[] = texts("assistant");
    for (const text of said)
      client.require(
        questions.includes(text) && answers.includes(text),
        () => `the turn ${text} is not in ${questions} / ${answers}`,
      );
    const twice = said.find((text) => questions.indexOf(text) !== questions.lastIndexOf(text));
    // A turn of a run that is not durable is made again where its reply was 503.
    client.require(twice === undefined || client.sim.wasFaulty(begun), () => `a turn is there twice: ${questions}`);
    const inOrder = said.map((text) => questions.indexOf(text));
    client.require(
      inOrder.every((at, index) => index === 0 || at > inOrder[index - 1]!),
      () => `turns are in another order: ${questions}`,
    );
  }
  if (client.chance(0.3)) {
    const foreign = await client.ask(`${path}/messages`, { user: client.stranger });
    if (foreign !== null && foreign.status < 500)
      client.require(foreign.status === 404, () => `another user reads ${foreign.text}`);
  }
  if (client.chance(0.2)) {
    // It is deleted while a turn is at work, which writes none of it again, or begins another one.
    const last = tell(`last ${key}`);
    await client.pause(1_000);
    await client.insist(path, { method: "DELETE" });
    await last;
    const { data } = await client.insist(`${path}/messages`);
    const left = JSON.stringify(data ?? null);
    client.require(!left.includes(`hello ${key}`), () => `a deleted conversation has ${left}`);
  } else if (client.chance(0.4)) {
    await client.insist(path, { method: "DELETE" });
    const after = await client.insist(path);
    client.require(after.status === 404, () => `a deleted conversation is still there: ${after.text}`);
  }
}

const KINDS = { run, task, workflow, cancel, once, direct, talk } satisfies Record<
  string,
  (client: Client) => Promise<void>
>;
export type ClientKind = keyof typeof KINDS;
export const CLIENT_KINDS = Object.keys(KINDS) as ClientKind[];

/** Resolves once it has seen all that it wants to see. */
export const startClient = (sim: Simulation, kind: ClientKind, number: number, left?: Left): Promise<void> =>
  KINDS[kind](new Client(sim, number, left));
