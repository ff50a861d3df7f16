/** Push notifications: the client of the A2A SDK sets them up, in 1.0 and in 0.3, and a server of its own is told. */
import assert from "node:assert/strict";
import { before, describe, type TestContext, test } from "node:test";
import { Message, Role, type SendMessageRequest, type Task } from "@a2a-js/sdk";
import {
  type Client,
  ClientFactory,
  createAuthenticatingFetchWithRetry,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
} from "@a2a-js/sdk/client";
import { A2aCaller, now, said } from "../support/a2a.ts";
import { approvalManifest, PAY_PLUGIN } from "../support/approvals.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { checkedClaims, pushReceiver } from "../support/push-receiver.ts";
import { startService, type TestService } from "../support/service.ts";
import { SECRET, token } from "../support/tokens.ts";

const PAYER = { replies: [{ when: "^pay (\\d+)", call: { tool: "pay", input: { amount: "{{ int(match[1]) }}" } } }] };

const agent = (model: string, more: object = {}) => ({ instructions: "Help.", model, memory: false, ...more });

const MANIFEST = {
  ...approvalManifest({}),
  server: { push: { enabled: true, perTask: 2, allowPrivate: ["127.0.0.1"], max: "4KiB" }, limits: { drain: "100ms" } },
  auth: {
    mode: "authNext",
    isolation: "none",
    provider: { use: "jwt", secret: SECRET },
    publicRoutes: ["GET /.well-known/*"],
  },
  providers: { demo: { use: "scripted", models: { slow: { firstDelay: "60s" }, payer: PAYER } } },
  agents: { desk: agent("demo/echo"), slow: agent("demo/slow"), payer: agent("demo/payer", { tools: ["pay"] }) },
};

const VERSIONS = ["1.0", "0.3"] as const;
type Version = (typeof VERSIONS)[number];

/** Asks for a card as a client of 0.3 does, without a version, and sees no more of it than that knows. */
const fetchOld: typeof fetch = async (input) => {
  const { supportedInterfaces, ...card } = (await (await fetch(input)).json()) as Record<string, unknown>;
  return Response.json(card);
};

function clientOf(service: TestService, agentId: string, version: Version): Promise<Client> {
  const legacyCompat = { enabled: version === "0.3" };
  const fetchImpl = createAuthenticatingFetchWithRetry(fetch, {
    headers: async () => ({ authorization: `Bearer ${token({ sub: "ada" })}` }),
    shouldRetryWithHeaders: async () => undefined,
  });
  const factory = new ClientFactory({
    transports: [new JsonRpcTransportFactory({ fetchImpl, legacyCompat })],
    cardResolver: new DefaultAgentCardResolver({ legacyCompat, fetchImpl: version === "0.3" ? fetchOld : fetch }),
  });
  return factory.createFromUrl(service.url, `/.well-known/${agentId}/agent-card.json`);
}

const config = (url: string, more: object = {}) => ({
  tenant: "",
  taskId: "",
  id: "",
  url,
  token: "",
  authentication: undefined,
  ...more,
});

const request = (text: string, push?: ReturnType<typeof config>): SendMessageRequest => ({
  tenant: "",
  message: { ...Message.fromJSON({ messageId: `m-${Math.random()}`, parts: [{ text }] }), role: Role.ROLE_USER },
  configuration: { acceptedOutputModes: [], taskPushNotificationConfig: push, returnImmediately: true },
  metadata: undefined,
});

let service: TestService;
before(async (t) => {
  service = await startService(t as TestContext, MANIFEST, { plugins: [pluginFolder(t as TestContext, PAY_PLUGIN)] });
});

const callerOf = (user: string) => new A2aCaller(service, { authorization: `Bearer ${token({ sub: user })}` });

for (const version of VERSIONS) {
  describe(`push notifications for the SDK's client of A2A ${version}`, () => {
    test(`POST /a2a/:id: the receiver named in a message of A2A ${version} is told of the end of its task, signed`, async (t) => {
      const receiver = await pushReceiver(t);
      const client = await clientOf(service, "desk", version);
      const authentication = { scheme: "Basic", credentials: "dTpw" };
      const push = config(receiver.url, { token: "mine", authentication });
      const task = (await client.sendMessage(request("hello there", push))) as Task;
      const [told] = await receiver.when(1);
      const ended = version === "1.0" ? told!.body.task : told!.body;
      assert.equal(ended.id, task.id);
      assert.equal(ended.status.state, version === "1.0" ? "TASK_STATE_COMPLETED" : "completed");
      assert.match(JSON.stringify(ended.artifacts), /hello there/);
      assert.equal(told!.headers["x-a2a-notification-token"], "mine");
      assert.equal(told!.headers.authorization, "Basic dTpw");
      assert.equal(told!.headers["content-type"], version === "1.0" ? "application/a2a+json" : "application/json");
      const claims = await checkedClaims(service.url, told!, receiver.url);
      assert.equal(claims.iss, `${service.url}/a2a/desk`);
      assert.equal(claims.taskId, task.id);
      assert.ok(claims.jti);
    });

    test(`POST /a2a/:id: configurations of a task are set, read, listed and deleted by the client of A2A ${version}, and its secrets are not shown`, async (t) => {
      const receiver = await pushReceiver(t);
      const client = await clientOf(service, "slow", version);
      const { id: taskId } = (await client.sendMessage(request("x"))) as Task;
      const authentication = { scheme: "Bearer", credentials: "secret-2" };
      const given = config(receiver.url, { taskId, id: "one", token: "secret-1", authentication });
      const made = await client.createTaskPushNotificationConfig(given);
      const shown = { ...given, token: "", authentication: { scheme: "Bearer", credentials: "" } };
      assert.deepEqual(made, shown);
      const at = { tenant: "", taskId };
      assert.deepEqual(await client.getTaskPushNotificationConfig({ ...at, id: "one" }), shown);
      const list = () => client.listTaskPushNotificationConfig({ ...at, pageSize: 0, pageToken: "" });
      assert.deepEqual((await list()).configs, [shown]);
      await client.deleteTaskPushNotificationConfig({ ...at, id: "one" });
      assert.deepEqual((await list()).configs, []);
      await client.createTaskPushNotificationConfig(config(receiver.url, { taskId }));
      await client.cancelTask({ tenant: "", id: taskId, metadata: undefined });
      const [told] = await receiver.when(1);
      const task = version === "1.0" ? told!.body.task : told!.body;
      assert.equal(task.status.state, version === "1.0" ? "TASK_STATE_CANCELED" : "canceled");
      // Without credentials of its own the receiver is shown the signature.
      assert.equal(told!.headers.authorization, `Bearer ${told!.headers["x-a2a-notification-jwt"]}`);
      assert.equal(told!.headers["x-a2a-notification-token"], undefined);
    });
  });
}

test("POST /a2a/:id: a receiver is told that a task asks for approval, that it goes on, and that it has ended, in this order", async (t) => {
  const receiver = await pushReceiver(t);
  const ada = callerOf("ada");
  const configuration = { taskPushNotificationConfig: { url: receiver.url } };
  const task = await ada.send("payer", { ...said("pay 5"), configuration });
  await receiver.when(1);
  await ada.send("payer", said("yes", { taskId: task.id }));
  const states = () => receiver.told.map(({ body }) => body.task.status.state);
  for (let count = 1; states().at(-1) !== "TASK_STATE_COMPLETED"; count++) await receiver.when(count + 1);
  // A receiver that is slower than the task does not get each status in between.
  assert.deepEqual(
    states().filter((state) => state !== "TASK_STATE_WORKING"),
    ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"],
  );
});

test("POST /a2a/:id: a configuration that is set when the task has ended already is told of the end", async (t) => {
  const receiver = await pushReceiver(t);
  const ada = callerOf("ada");
  const { id } = await ada.send("desk", said("hello"));
  await ada.result("desk", "CreateTaskPushNotificationConfig", { taskId: id, url: receiver.url });
  const [told] = await receiver.when(1);
  assert.equal(told!.body.task.status.state, "TASK_STATE_COMPLETED");
});

test("POST /a2a/:id: a notification that a receiver does not take is told again with the same jti, and a redirect is not followed", async (t) => {
  const statuses = [500, 302];
  const receiver = await pushReceiver(t, (index) => statuses[index] ?? 204);
  await callerOf("ada").send("desk", {
    ...said("x"),
    configuration: { taskPushNotificationConfig: { url: receiver.url } },
  });
  const told = await receiver.when(3);
  assert.deepEqual(new Set(told.map(({ url }) => url)), new Set(["/hook?key=k"]));
  const claims = await Promise.all(told.map((each) => checkedClaims(service.url, each, receiver.url)));
  assert.equal(new Set(claims.map(({ jti }) => jti)).size, 1);
});

test("POST /a2a/:id: each status has a jti of its own, also when the configuration was deleted and set again in between", async (t) => {
  const receiver = await pushReceiver(t);
  const ada = callerOf("ada");
  const configuration = { taskPushNotificationConfig: { url: receiver.url } };
  const { id: taskId } = await ada.send("payer", { ...said("pay 5"), configuration });
  await receiver.when(1);
  await ada.result("payer", "DeleteTaskPushNotificationConfig", { taskId, id: taskId });
  await ada.result("payer", "CreateTaskPushNotificationConfig", { taskId, url: receiver.url });
  await receiver.when(2);
  await ada.send("payer", said("yes", { taskId }));
  const states = () => receiver.told.map(({ body }) => body.task.status.state);
  while (states().at(-1) !== "TASK_STATE_COMPLETED") await receiver.when(receiver.told.length + 1);
  const claims = await Promise.all(receiver.told.map((each) => checkedClaims(service.url, each, receiver.url)));
  const told = claims.map(({ jti }, index) => `${jti} ${states()[index]}`);
  // The same status that is told again has the same one.
  assert.equal(told[1], told[0]);
  assert.equal(new Set(claims.map(({ jti }) => jti)).size, new Set(states()).size, told.join("\n"));
});

test("POST /a2a/:id: a message that is refused because its task has ended sets no configuration", async (t) => {
  const receiver = await pushReceiver(t);
  const ada = callerOf("ada");
  const { id: taskId } = await ada.send("desk", said("x"));
  const configuration = { taskPushNotificationConfig: { url: receiver.url } };
  const [, text] = await ada.error("desk", "SendMessage", { ...said("more", { taskId }), configuration });
  assert.match(text, /has ended/);
  const { configs = [] } = await ada.result("desk", "ListTaskPushNotificationConfigs", { taskId });
  assert.deepEqual(configs, []);
});

test("POST /a2a/:id: of a task that is larger than server.push.max the receiver is told the status alone", async (t) => {
  const receiver = await pushReceiver(t);
  const configuration = { taskPushNotificationConfig: { url: receiver.url } };
  await callerOf("ada").send("desk", { ...said("y".repeat(8_000)), configuration });
  const [told] = await receiver.when(1);
  assert.equal(told!.body.statusUpdate.status.state, "TASK_STATE_COMPLETED");
  assert.ok(told!.text.length < 4_096);
});

describe("what is refused", () => {
  const REFUSED: [what: string, config: object, message: RegExp][] = [
    ["a private address", { url: "http://10.0.0.1/x" }, /params\.url must not be at a private address/],
    ["the address of cloud metadata", { url: "http://169.254.169.254/" }, /params\.url must not be at a private/],
    ["an address of IPv6 that is one of this machine", { url: "http://[::1]/" }, /params\.url must not be at a priv/],
    ["another scheme", { url: "ftp://example.com/" }, /params\.url must be an http or https URL/],
    ["a URL with a password", { url: "http://a:b@example.com/" }, /params\.url must be an http or https URL without/],
    ["no URL", {}, /params\.url/],
    [
      "a token that ends the header",
      { url: "http://127.0.0.1/", token: "a\r\nb: c" },
      /params\.token must match pattern/,
    ],
    [
      "credentials without a scheme",
      { url: "http://127.0.0.1/", authentication: { credentials: "x" } },
      /params\.authentication must name the scheme/,
    ],
  ];
  for (const [what, given, message] of REFUSED)
    test(`CreateTaskPushNotificationConfig refuses ${what} with -32602 and the field`, async () => {
      const ada = callerOf("ada");
      const { id: taskId } = await ada.send("desk", said("x"));
      const [code, text] = await ada.error("desk", "CreateTaskPushNotificationConfig", { taskId, ...given });
      assert.equal(code, -32602, text);
      assert.match(text, message);
    });

  test("SendMessage with a configuration that is refused begins no task", async () => {
    const ada = callerOf("refused");
    const configuration = { taskPushNotificationConfig: { url: "http://10.0.0.1/" } };
    const [code, text] = await ada.error("desk", "SendMessage", { ...said("x"), configuration });
    assert.equal(code, -32602);
    assert.match(text, /^.*params\.configuration\.taskPushNotificationConfig\.url must not be at a private address/);
    const { tasks } = await ada.result("desk", "ListTasks", {});
    assert.ok(!tasks.some((task: { history: object[] }) => JSON.stringify(task.history).includes("10.0.0.1")));
  });

  test("CreateTaskPushNotificationConfig refuses more configurations of a task than server.push.perTask, and takes one with a known id", async (t) => {
    const receiver = await pushReceiver(t);
    const ada = callerOf("ada");
    const { id: taskId } = await ada.send("slow", { ...said("x"), ...now });
    const create = (id: string) => ({ taskId, id, url: receiver.url });
    await ada.result("slow", "CreateTaskPushNotificationConfig", create("a"));
    await ada.result("slow", "CreateTaskPushNotificationConfig", create("b"));
    await ada.result("slow", "CreateTaskPushNotificationConfig", create("b"));
    const [code, text] = await ada.error("slow", "CreateTaskPushNotificationConfig", create("c"));
    assert.equal(code, -32602);
    assert.match(text, /has 2 push notification configurations, which is server\.push\.perTask/);
    await ada.result("slow", "CancelTask", { id: taskId });
  });

  test("only the user of a task sets, reads, lists and deletes its configurations, without isolation too", async (t) => {
    const receiver = await pushReceiver(t);
    const [ada, bob] = [callerOf("ada"), callerOf("bob")];
    const { id: taskId } = await ada.send("slow", { ...said("x"), ...now });
    await ada.result("slow", "CreateTaskPushNotificationConfig", { taskId, id: "a", url: receiver.url });
    const find = { taskId, id: "a" };
    for (const [method, params] of [
      ["CreateTaskPushNotificationConfig", { taskId, url: receiver.url }],
      ["GetTaskPushNotificationConfig", find],
      ["ListTaskPushNotificationConfigs", { taskId }],
      ["DeleteTaskPushNotificationConfig", find],
    ] as const)
      assert.match((await bob.error("slow", method, params))[1], /belong to its user/, method);
    assert.equal((await ada.result("slow", "ListTaskPushNotificationConfigs", { taskId })).configs.length, 1);
    await ada.result("slow", "CancelTask", { id: taskId });
  });
});
