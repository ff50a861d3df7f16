/** The search for costly requests, against what is stored: small questions of much, and what one user does beside another. */
import assert from "node:assert/strict";
import { createHook } from "node:async_hooks";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { LONG } from "../support/at-length.ts";
import { eventually } from "../support/event-reader.ts";
import { inject } from "../support/inject.ts";
import { rewrite } from "../support/reload.ts";
import type { Loose } from "../support/served-upstream.ts";
import { startService, type TestService } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";
import { SECRET, token } from "../support/tokens.ts";
import { findExcess } from "./cost-meter.ts";

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
  auth: { mode: "authNext", provider: { use: "jwt", secret: SECRET }, consoleRoutes: [] },
  server: { limits: { body: "8MiB" } },
  workflows: {
    keep: {
      steps: [
        { id: "first", andThen: { set: { text: "{{ input.text }}" } } },
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
    assert.equal(await findExcess((size) => ({ bytes: size, work: () => ask(size) }), SIZES), null);
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
    assert.equal(await findExcess((size) => ({ bytes: size, work: () => ask(size) }), SIZES), null);
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
  assert.equal(await findExcess((size) => ({ bytes: size, work: () => ask(size) }), SIZES), null);
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
    // As many bytes are asked in both: it may only cost more by what is noise.
    const excess = await findExcess(
      (place) => ({
        bytes: MESSAGE,
        async work() {
          for (let times = 0; times < 3; times++) {
            const answer = await question(places[place]!);
            await answer.text();
            assert.ok(answer.ok, `${title}: ${answer.status}`);
          }
        },
      }),
      [...places.keys()],
    );
    if (excess !== null) found.push(`${title}: ${JSON.stringify(excess)}`);
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
