/** The client of the A2A SDK, in 1.0 and in 0.3, against a running service with users and a file to keep tasks in. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { before, describe, type TestContext, test } from "node:test";
import {
  Message,
  type Part,
  Role,
  type SendMessageRequest,
  type StreamResponse,
  type Task,
  TaskState,
} from "@a2a-js/sdk";
import {
  type Client,
  ClientFactory,
  createAuthenticatingFetchWithRetry,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
} from "@a2a-js/sdk/client";
import { approvalManifest, PAY_PLUGIN, ran } from "../support/approvals.ts";
import { type HeldModel, heldModel } from "../support/held-model.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { startService, type TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";
import { SECRET, token } from "../support/tokens.ts";

const agent = (model: string, more: object = {}) => ({ instructions: "Help.", model, memory: "default", ...more });

const PAYER = { replies: [{ when: "^pay (\\d+)", call: { tool: "pay", input: { amount: "{{ int(match[1]) }}" } } }] };

const manifestOver = (store: string) => ({
  ...approvalManifest({ memory: { default: {} } }),
  store,
  server: { limits: { drain: "100ms" } },
  auth: {
    mode: "authNext",
    provider: { use: "jwt", secret: SECRET },
    publicRoutes: ["GET /.well-known/*"],
  },
  providers: {
    demo: { use: "scripted", chunks: 5, delay: "30ms", models: { slow: { firstDelay: "60s" }, payer: PAYER } },
  },
  agents: { desk: agent("demo/echo"), slow: agent("demo/slow"), payer: agent("demo/payer", { tools: ["pay"] }) },
});

const VERSIONS = ["1.0", "0.3"] as const;
type Version = (typeof VERSIONS)[number];

/** Asks for a card as a client of 0.3 does, without a version, and sees no more of it than that knows. */
const fetchOld: typeof fetch = async (input) => {
  const { supportedInterfaces, ...card } = (await (await fetch(input)).json()) as Record<string, unknown>;
  return Response.json(card);
};

function clientOf(service: TestService, user: string, agentId: string, version: Version): Promise<Client> {
  const legacyCompat = { enabled: version === "0.3" };
  const authorization = `Bearer ${token({ sub: user })}`;
  const fetchImpl = createAuthenticatingFetchWithRetry(fetch, {
    headers: async () => ({ authorization }),
    shouldRetryWithHeaders: async () => undefined,
  });
  const factory = new ClientFactory({
    transports: [new JsonRpcTransportFactory({ fetchImpl, legacyCompat })],
    cardResolver: new DefaultAgentCardResolver({ legacyCompat, fetchImpl: version === "0.3" ? fetchOld : fetch }),
  });
  return factory.createFromUrl(service.url, `/.well-known/${agentId}/agent-card.json`);
}

const request = (text: string, more: Partial<Message> = {}, returnImmediately = false): SendMessageRequest => ({
  tenant: "",
  message: {
    ...Message.fromJSON({ messageId: `m-${Math.random()}`, parts: [{ text }] }),
    role: Role.ROLE_USER,
    ...more,
  },
  configuration: { acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately },
  metadata: undefined,
});

const textIn = (parts: readonly Part[]) =>
  parts.map(({ content }) => (content?.$case === "text" ? content.value : "")).join("");
const answerOf = ({ artifacts }: Task) => artifacts.map(({ parts }) => textIn(parts)).join("");

async function send(client: Client, text: string, more: Partial<Message> = {}, at = false): Promise<Task> {
  const sent = await client.sendMessage(request(text, more, at));
  assert.ok("status" in sent, "it is a task");
  return sent;
}

/** What a reader of a stream has at its end. @param heard called with the kind of each event */
async function readAll(stream: AsyncIterable<StreamResponse>, heard: (event: string) => void = () => {}) {
  const seen = { text: "", states: [] as (TaskState | undefined)[], updates: 0, id: "" };
  for await (const { payload } of stream) {
    if (payload?.$case === "task") {
      seen.id = payload.value.id;
      seen.text = answerOf(payload.value);
      seen.states.push(payload.value.status?.state);
    }
    if (payload?.$case === "artifactUpdate") {
      seen.updates++;
      seen.text += textIn(payload.value.artifact?.parts ?? []);
    }
    if (payload?.$case === "statusUpdate") seen.states.push(payload.value.status?.state);
    if (payload !== undefined) heard(payload.$case);
  }
  return seen;
}

const { TASK_STATE_WORKING, TASK_STATE_COMPLETED, TASK_STATE_CANCELED } = TaskState;
const at = { tenant: "" };

const serve = (t: TestContext, manifest: object, ...plugins: string[]) =>
  startService(t, manifest, { plugins: [pluginFolder(t, PAY_PLUGIN), ...plugins] });

let service: TestService;
let held: HeldModel;
before(async (t) => {
  const folder = await temporaryFolder(t as TestContext);
  held = heldModel(t as TestContext);
  const { providers, agents, ...manifest } = manifestOver(`sqlite:${join(folder, "tasks.db")}`);
  service = await serve(
    t as TestContext,
    { ...manifest, providers: { ...providers, held: held.settings }, agents: { ...agents, held: agent("held/one") } },
    held.plugins,
  );
});

for (const version of VERSIONS) {
  describe(`a client of A2A ${version}`, () => {
    let desk: Client;
    let slow: Client;
    before(async () => {
      desk = await clientOf(service, "ada", "desk", version);
      slow = await clientOf(service, "ada", "slow", version);
      assert.match(desk.protocolVersion, version === "1.0" ? /^1\.0/ : /^0\.3/);
    });

    test(`a client of A2A ${version} finds the agent by its card, sends it a message and gets the task that came of it`, async () => {
      const task = await send(desk, "tea for two");
      assert.equal(task.status?.state, TASK_STATE_COMPLETED);
      assert.equal(answerOf(task), "tea for two");
      assert.deepEqual(await desk.getTask({ ...at, id: task.id }), task);
    });

    test(`a client of A2A ${version} goes on with a conversation by its context`, async () => {
      const { contextId } = await send(desk, "first");
      assert.equal((await send(desk, "second", { contextId })).contextId, contextId);
      const headers = { authorization: `Bearer ${token({ sub: "ada" })}` };
      const reply = await service.get(`/api/memory/conversations/${contextId}/messages`, headers);
      const { data } = (await reply.json()) as { data: { messages: unknown[]; conversation: { userId: string } } };
      assert.deepEqual([data.messages.length, data.conversation.userId], [4, "ada"]);
    });

    test(`a client of A2A ${version} reads the answer as it grows`, async () => {
      const client = await clientOf(service, "ada", "held", version);
      held.hold(`grows ${version}`);
      const seen = await readAll(client.sendMessageStream(request(`grows ${version}`)), (event) => {
        if (event === "artifactUpdate") held.release(`grows ${version}`);
      });
      assert.match(seen.text, /^half (\d+) rest \1$/);
      assert.ok(seen.updates > 1);
      assert.deepEqual(seen.states, [TASK_STATE_WORKING, TASK_STATE_COMPLETED]);
    });

    test(`a client of A2A ${version} does not wait when it does not want to, and takes up the stream of a task that runs`, async () => {
      const client = await clientOf(service, "ada", "held", version);
      held.hold(`later ${version}`);
      const begun = await send(client, `later ${version}`, {}, true);
      assert.equal(begun.status?.state, TASK_STATE_WORKING);
      const seen = await readAll(client.resubscribeTask({ ...at, id: begun.id }), () =>
        held.release(`later ${version}`),
      );
      assert.match(seen.text, /^half (\d+) rest \1$/);
      assert.equal(seen.states.at(-1), TASK_STATE_COMPLETED);
    });

    test(`a client of A2A ${version} cancels a task that runs: its reader is told, and the model call ends`, async () => {
      const stream = slow.sendMessageStream(request("never answered"));
      const first = (await stream.next()).value as StreamResponse;
      assert.ok(first.payload?.$case === "task");
      const { id } = first.payload.value;
      const [canceled, seen] = await Promise.all([
        slow.cancelTask({ ...at, id, metadata: undefined }),
        readAll(stream),
      ]);
      assert.equal(canceled.status?.state, TASK_STATE_CANCELED);
      assert.deepEqual(seen.states, [TASK_STATE_CANCELED]);
      assert.equal((await slow.getTask({ ...at, id })).status?.state, TASK_STATE_CANCELED);
      const working = () => service.service.agents.get("slow")!.summary().status === "working";
      for (let tries = 0; working() && tries < 6_000; tries++) await new Promise((resolve) => setTimeout(resolve, 10));
      assert.equal(working(), false);
    });

    test(`a client of A2A ${version} is asked for approval, answers with data or text on the same task, and gets what came of it`, async () => {
      const payer = await clientOf(service, "ada", "payer", version);
      for (const [amount, answer] of [
        [version === "1.0" ? 11 : 21, { data: { approved: true, reason: "agreed" } }],
        [version === "1.0" ? 12 : 22, { text: "no" }],
      ] as const) {
        const asked = await send(payer, `pay ${amount}`);
        assert.equal(asked.status?.state, TaskState.TASK_STATE_INPUT_REQUIRED);
        const [, question] = asked.status?.message?.parts ?? [];
        assert.ok(question?.content?.$case === "data");
        assert.deepEqual(question.content.value.tool, "pay");
        assert.deepEqual(question.content.value.input, { amount });
        const { parts } = Message.fromJSON({ parts: [answer] });
        const done = await send(payer, "", { taskId: asked.id, contextId: asked.contextId, parts });
        assert.deepEqual([done.id, done.status?.state], [asked.id, TASK_STATE_COMPLETED]);
        assert.deepEqual(await payer.getTask({ ...at, id: done.id }), done);
      }
      assert.deepEqual(
        ran.filter((amount) => Math.floor(amount / 10) === (version === "1.0" ? 1 : 2)),
        [version === "1.0" ? 11 : 21],
      );
    });

    test(`a client of A2A ${version} is told by errors of the protocol what is not possible`, async () => {
      const { id } = await send(desk, "x");
      const named = (name: string) => ({ name });
      await assert.rejects(desk.getTask({ ...at, id: "none" }), named("TaskNotFoundError"));
      await assert.rejects(desk.cancelTask({ ...at, id, metadata: undefined }), named("TaskNotCancelableError"));
      await assert.rejects(send(desk, "y", { taskId: id }), named("UnsupportedOperationError"));
      await assert.rejects(send(desk, "y", { contextId: "no/conversation" }), named("RequestMalformedError"));
      await assert.rejects(readAll(desk.resubscribeTask({ ...at, id })), /has ended/);
    });

    test(`a client of A2A ${version} sees nothing of the tasks and conversations of another user`, async () => {
      const bob = await clientOf(service, "bob", "slow", version);
      const { id } = await send(slow, "hers", {}, true);
      const missing = { name: "TaskNotFoundError" };
      await assert.rejects(bob.getTask({ ...at, id }), missing);
      await assert.rejects(bob.cancelTask({ ...at, id, metadata: undefined }), missing);
      await assert.rejects(send(bob, "x", { taskId: id }), missing);
      await assert.rejects(readAll(bob.resubscribeTask({ ...at, id })), /does not exist/);
      assert.equal((await slow.getTask({ ...at, id })).status?.state, TASK_STATE_WORKING);
      await slow.cancelTask({ ...at, id, metadata: undefined });
      const hers = await send(desk, "a secret");
      const his = await clientOf(service, "bob", "desk", version);
      const own = await send(his, "go on", { contextId: hers.contextId });
      assert.equal(own.status?.state, TaskState.TASK_STATE_COMPLETED);
      assert.doesNotMatch(JSON.stringify(own), /a secret/);
    });
  });
}

test("ListTasks shows the caller's own", async () => {
  const [ada, bob] = await Promise.all(["ada", "bob"].map((user) => clientOf(service, user, "desk", "1.0")));
  const his = await send(bob!, "his");
  const all = { ...at, contextId: "", status: 0, pageToken: "", statusTimestampAfter: undefined };
  const idsOf = async (client: Client) => (await client.listTasks(all)).tasks.map(({ id }) => id);
  assert.equal((await idsOf(bob!))[0], his.id);
  const hers = await idsOf(ada!);
  assert.ok(hers.length > 0 && !hers.includes(his.id));
});

test("without a token the call is 401 with the envelope, whatever is called", async () => {
  const reply = await service.post("/a2a/desk", { jsonrpc: "2.0", id: 1, method: "ListTasks", params: {} });
  assert.equal(reply.status, 401);
  assert.match(reply.headers.get("www-authenticate")!, /^Bearer/);
  assert.equal(((await reply.json()) as { success: boolean }).success, false);
});

test("tasks survive a restart: what ran when the service stopped goes on, and its reader was told", async (t) => {
  const manifest = manifestOver(`sqlite:${join(await temporaryFolder(t), "tasks.db")}`);
  const first = await serve(t, manifest);
  const done = await send(await clientOf(first, "ada", "desk", "1.0"), "kept");
  const slow = await clientOf(first, "ada", "slow", "1.0");
  const stream = slow.sendMessageStream(request("never answered"));
  const { payload } = (await stream.next()).value as StreamResponse;
  assert.ok(payload?.$case === "task");
  const { id } = payload.value;
  const told = readAll(stream).catch((error: Error) => error);
  await first.stop();
  await told;
  const second = await serve(t, manifest);
  const desk = await clientOf(second, "ada", "desk", "1.0");
  assert.deepEqual(await desk.getTask({ ...at, id: done.id }), done);
  const again = await clientOf(second, "ada", "slow", "1.0");
  assert.equal((await again.getTask({ ...at, id })).status?.state, TaskState.TASK_STATE_WORKING);
  const rest = again.resubscribeTask({ ...at, id });
  await rest.next();
  const [seen, canceled] = await Promise.all([readAll(rest), again.cancelTask({ ...at, id, metadata: undefined })]);
  assert.deepEqual([seen.states.at(-1), canceled.status?.state], [TASK_STATE_CANCELED, TASK_STATE_CANCELED]);
});
