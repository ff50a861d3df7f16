/** The search for costly requests, against what is stored: small questions of much, and what one user does beside another. */
import assert from "node:assert/strict";
import { createHook } from "node:async_hooks";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import type { Commit, Row } from "../../core/storage/store.ts";
import { LONG } from "../support/at-length.ts";
import { eventually } from "../support/event-reader.ts";
import { inject } from "../support/inject.ts";
import { rewrite } from "../support/reload.ts";
import type { Loose } from "../support/served-upstream.ts";
import { startService, type TestService } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";
import { SECRET, token } from "../support/tokens.ts";

const folder = mkdtempSync(join(tmpdir(), "penstock-cost-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const MESSAGE = 8_000;
/** Characters that are stored before the small question is asked. */
const SIZES = LONG ? [100_000, 400_000, 1_600_000, 6_400_000] : [100_000, 400_000, 1_600_000];
/** Outputs of an execution, each as large as a slice of work. */
const WIDE = 20;
const MANIFEST = {
  name: "Cost",
  version: "1.0.0",
  providers: { demo: { use: "scripted", replies: [{ text: "Yes." }] } },
  agents: { assistant: { instructions: "Repeat.", model: "demo/echo" } },
  memory: { default: {} },
  logs: { level: "warn" },
  // Traces are written some time later, which may be while something else is counted.
  observability: { sample: 0 },
  auth: { mode: "authNext", provider: { use: "jwt", secret: SECRET }, consoleRoutes: [] },
  server: { limits: { body: "8MiB" } },
  workflows: {
    keep: {
      steps: [
        { id: "first", andThen: { set: { text: "{{ input.text }}" } } },
        { id: "last", andThen: { set: { done: true } } },
      ],
    },
    small: {
      steps: [
        { id: "first", andThen: { set: { n: 1 } } },
        { id: "last", andThen: { set: { done: true } } },
      ],
    },
    wide: {
      steps: [
        ...Array.from({ length: WIDE }, (_, n) => ({ id: `s${n}`, andThen: { set: { n, text: "{{ input.text }}" } } })),
        { id: "last", andThen: { set: { done: true } } },
      ],
    },
  },
};

const as = (sub: string) => ({ authorization: `Bearer ${token({ sub })}` });
const [ada, bob] = [as("ada"), as("bob")];
const serve = (store: string) => startService({ after }, { ...MANIFEST, store });
const STORE = `sqlite:${join(folder, "small.db")}`;
const service = await serve(STORE);

async function ok(reply: Promise<Response>): Promise<Loose> {
  const answer = await reply;
  const body = (await answer.json()) as Loose;
  assert.ok(answer.ok, JSON.stringify(body).slice(0, 500));
  return body.data;
}

const save = (to: TestService, headers: Record<string, string>, conversationId: string, messages: object[]) =>
  to.post("/api/memory/save-messages", { conversationId, messages }, headers);
const said = (length: number) => ({ role: "user", parts: [{ type: "text", text: "x".repeat(length) }] });

/** A conversation of so many characters. */
async function converse(to: TestService, headers: Record<string, string>, id: string, size: number): Promise<void> {
  await ok(to.post("/api/memory/conversations", { conversationId: id, resourceId: "desk" }, headers));
  for (let left = size / MESSAGE; left > 0; left -= 100) {
    const messages = Array.from({ length: Math.min(100, Math.ceil(left)) }, () => said(MESSAGE));
    await ok(save(to, headers, id, messages));
  }
}

for (const size of SIZES) {
  await converse(service, ada, `c${size}`, size);
  const input = { text: "x".repeat(size) };
  await ok(service.post("/workflows/keep/execute", { input, options: { executionId: `e${size}` } }, ada));
}
const input = { text: "x".repeat(70_000) };
await ok(service.post("/workflows/wide/execute", { input, options: { executionId: "wide" } }, ada));

/**
 * Characters of JSON that are made or read while something is done, and of the rows that the store is given or gives: what is counted
 * is the same on every machine.
 *
 * @param writes whether what is made and written counts: where agents run, their history is written some time later
 */
async function worked(to: TestService, work: () => Promise<unknown>, writes = true): Promise<number> {
  let characters = 0;
  const { parse, stringify } = JSON;
  const { store } = to.service;
  const { commit, get, getMany, scan } = store;
  const add = <T>(text: T): T => {
    if (typeof text === "string") characters += text.length;
    return text;
  };
  const addAll = <T extends Row | undefined>(rows: T[]): T[] => {
    for (const row of rows) add(row?.value);
    return rows;
  };
  JSON.parse = (text, ...more) => parse(add(text), ...more);
  if (writes) JSON.stringify = (...given: Loose[]) => add((stringify as Loose)(...given));
  Object.assign(store, {
    async commit(changes: Commit) {
      if (writes) for (const [, value] of changes.put ?? []) add(value);
      return commit(changes);
    },
    get: async (key: string) => addAll([await get(key)])[0],
    getMany: async (...given: Parameters<typeof getMany>) => addAll(await getMany(...given)),
    scan: async (...given: Parameters<typeof scan>) => addAll(await scan(...given)),
  });
  try {
    await work();
  } finally {
    Object.assign(JSON, { parse, stringify });
    Object.assign(store, { commit, get, getMany, scan });
  }
  return characters;
}

/** What any request costs, however little it is about. */
const ALWAYS = 40_000;

/** Checks that four times as much costs four times as much, and a little. */
async function growsAsStored(ask: (size: number) => Promise<unknown>, writes = true): Promise<void> {
  let before: number | null = null;
  for (const size of SIZES) {
    await ask(size);
    const cost = await worked(service, () => ask(size), writes);
    if (before !== null)
      assert.ok(cost < 4.4 * before + ALWAYS, `${size}: ${cost} characters, and ${before} for a quarter of it`);
    before = cost;
  }
}

/** Questions of some bytes, by what has the size. */
const QUESTIONS: Record<string, (size: number) => Promise<Response>> = {
  "POST /api/memory/conversations/:conversationId/clone": (size) =>
    service.post(`/api/memory/conversations/c${size}/clone`, {}, ada),
  "GET /api/memory/conversations/:conversationId": (size) => service.get(`/api/memory/conversations/c${size}`, ada),
  "GET /api/memory/conversations/:conversationId/messages": (size) =>
    service.get(`/api/memory/conversations/c${size}/messages?limit=1000`, ada),
  "GET /api/memory/conversations": () => service.get("/api/memory/conversations", ada),
  "POST /workflows/:id/executions/:executionId/replay": (size) =>
    service.post(`/workflows/keep/executions/e${size}/replay`, { stepId: "last" }, ada),
  "GET /workflows/:id/executions/:executionId/state": (size) =>
    service.get(`/workflows/keep/executions/e${size}/state`, ada),
  "GET /workflows/:id/executions/:executionId/stream": (size) =>
    service.get(`/workflows/keep/executions/e${size}/stream`, ada),
};

for (const [title, question] of Object.entries(QUESTIONS))
  test(`${title}: what it costs the service does not grow faster than what is stored`, async () => {
    const ask = async (size: number) => {
      const answer = await question(size);
      await answer.text();
      assert.ok(answer.ok, `${size}: ${answer.status}`);
    };
    await growsAsStored(ask);
  });

/** Reloads with one setting more or less, so that something has changed each time. */
let reloads = 0;
async function change(): Promise<void> {
  const limits = { ...MANIFEST.server.limits, approvals: 100 + (reloads++ % 2) };
  rewrite(service, { ...MANIFEST, store: STORE, server: { limits } });
  const answer = await service.post("/reload", {}, { "x-service-dev": "true" });
  const { success, data } = (await answer.json()) as Loose;
  assert.ok(success && data.reloaded, JSON.stringify(data));
}

for (const title of Object.keys(QUESTIONS).filter((title) => title.startsWith("POST")))
  test(`${title}, with a reload between the question and its answer: what both cost does not grow faster than what is stored`, async () => {
    const ask = async (size: number) => {
      const [answer] = await Promise.all([QUESTIONS[title]!(size), change()]);
      await answer.text();
      assert.ok(answer.ok, `${size}: ${answer.status}`);
    };
    await growsAsStored(ask);
  });

test("WS /v1/responses: what several messages at once cost that continue a stored response does not grow faster than it is large", async () => {
  const socket = await openSocket(`${service.url}/v1/responses`, { headers: ada });
  const isLast = ({ type }: Loose) => type === "error" || type === "response.completed";
  const answered = async (messages: object[]) => {
    const answers: Loose[] = [];
    for (const message of messages) socket.send({ type: "response.create", model: "assistant", ...message });
    for (let left = messages.length; left > 0; ) {
      const answer = await socket.next();
      if (isLast(answer)) answers.push(answer);
      if (isLast(answer)) left--;
    }
    return answers;
  };
  const stored = new Map<number, string>();
  for (const size of SIZES) {
    // A message has at most 64 KiB: what is larger is posted.
    const body = { model: "assistant", input: "x".repeat(size) };
    const { id } = (await (await service.post("/v1/responses", body, ada)).json()) as Loose;
    stored.set(size, id);
  }
  const ask = async (size: number) => {
    // One is answered and two wait; the fourth is refused at once.
    const answers = await answered(
      [1, 2, 3, 4].map(() => ({ previous_response_id: stored.get(size), input: "Go on" })),
    );
    const refused = answers.filter(({ type }) => type === "error");
    assert.deepEqual(
      refused.map(({ error }) => error.code),
      ["rate_limit_exceeded"],
    );
  };
  await growsAsStored(ask, false);
  socket.close();
});

/** What the next user asks, of some bytes. */
const BESIDE: Record<string, (to: TestService) => Promise<Response>> = {
  "GET /api/memory/conversations": (to) => to.get("/api/memory/conversations?resourceId=desk", bob),
  "GET /api/memory/conversations/:conversationId/messages": (to) =>
    to.get("/api/memory/conversations/beside/messages", bob),
  "POST /api/memory/conversations/:conversationId/clone": (to) =>
    to.post("/api/memory/conversations/beside/clone", {}, bob),
  "POST /api/memory/save-messages": (to) => save(to, bob, "beside", [said(100)]),
  "GET /workflows/executions": (to) => to.get("/workflows/executions", bob),
  "POST /workflows/:id/execute": (to) => to.post("/workflows/keep/execute", { input: { text: "x" } }, bob),
};

test("what one user has stored costs the next one nothing: his lists, saves, clones and executions cost the same beside much as beside nothing", async () => {
  const empty = await serve(`sqlite:${join(folder, "empty.db")}`);
  const places = [empty, service];
  for (const place of places) await converse(place, bob, "beside", MESSAGE);
  const found: string[] = [];
  for (const [title, question] of Object.entries(BESIDE)) {
    const ask = async (to: TestService) => {
      const answer = await question(to);
      await answer.text();
      assert.ok(answer.ok, `${title}: ${answer.status}`);
    };
    const costs: number[] = [];
    for (const place of places) {
      await ask(place);
      costs.push(await worked(place, () => ask(place)));
    }
    if (costs[1]! > 1.2 * costs[0]! + 1_000) found.push(`${title}: ${costs.join(" and ")} characters`);
  }
  assert.deepEqual(found, []);
});

test("POST /api/memory/conversations/:conversationId/clone copies in slices, between which others have their turn", async () => {
  const { commits } = service.service.meters;
  const before = commits.of("ok");
  await ok(service.post("/api/memory/conversations/c1600000/clone", {}, ada));
  assert.ok(commits.of("ok") - before >= 6, `${commits.of("ok") - before} commits for 1.6 MB`);
});

test("POST /workflows/:id/executions/:executionId/replay copies in slices, between which others have their turn", async () => {
  let turns = 0;
  const hook = createHook({
    init(_, type) {
      if (type === "Immediate") turns++;
    },
  }).enable();
  await ok(service.post("/workflows/wide/executions/wide/replay", { stepId: "last" }, ada));
  hook.disable();
  // One for what is taken over, and one for the record of it.
  assert.ok(turns >= 2 * WIDE, `${turns} turns for ${WIDE} outputs`);
});

test("POST /workflows/:id/executions/:executionId/replay: a large input is not made to JSON again, which nobody else could interrupt", async () => {
  const options = { executionId: "asked" };
  await ok(service.post("/workflows/small/execute", { input: { text: "x".repeat(1_000_000) }, options }, ada));
  const { stringify } = JSON;
  let longest = 0;
  JSON.stringify = (...given: Loose[]) => {
    const text = (stringify as Loose)(...given);
    // The store quotes whole rows, which are text.
    if (typeof given[0] === "object") longest = Math.max(longest, text.length);
    return text;
  };
  try {
    await ok(service.post("/workflows/small/executions/asked/replay", { stepId: "last" }, ada));
  } finally {
    JSON.stringify = stringify;
  }
  assert.ok(longest < 100_000, `${longest} characters at once`);
  const executions: Loose[] = await ok(service.get("/workflows/executions?workflowId=small", ada));
  assert.deepEqual(
    executions.map(({ status, input }) => [status, input.text.length]),
    Array(2).fill(["completed", 1_000_000]),
  );
});

test("POST .../clone: of one user 256 copies may be made or wait, the next is 429 with Retry-After, and the next user's is made before they are", async () => {
  await converse(service, ada, "small", MESSAGE);
  await converse(service, bob, "of-bob", MESSAGE);
  const more = 10;
  const clone = (id: string, headers: Record<string, string>) =>
    inject(service.dispatch, { method: "POST", path: `/api/memory/conversations/${id}/clone`, headers });
  let ended = 0;
  // So that those behind it pile up, however fast the disk is.
  const long = clone("c1600000", ada);
  const copies = Array.from({ length: 256 + more }, async () => {
    const answer = await clone("small", ada);
    ended++;
    return answer;
  });
  // Those that are refused come at once: from then on 256 wait.
  await eventually(() => ended >= more, "the refusals");
  assert.equal((await clone("of-bob", bob)).status, 201);
  assert.ok(ended < 250, `${ended} copies of the first user ended before that of the next`);
  assert.equal((await long).status, 201);
  const answers = await Promise.all(copies);
  const refused = answers.filter(({ status }) => status === 429);
  assert.equal(answers.filter(({ status }) => status === 201).length + refused.length, answers.length);
  assert.ok(refused.length > 0 && refused.length <= more + 1, `${refused.length} refused`);
  assert.equal(refused[0]!.headers["retry-after"], "1");
});
