/** Contract, "Observability, logs, updates, discovery": agent cards, checked with the readers of the A2A SDK. */
import assert from "node:assert/strict";
import { before, type TestContext, test } from "node:test";
import { AgentCard } from "@a2a-js/sdk";
import { isLegacyAgentCard, parseLegacyAgentCard } from "@a2a-js/sdk/compat/v0_3/client";
import type { AgentCard as Served } from "../../generated/types.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";

const AGENTS = {
  desk: {
    name: "Desk",
    description: "Answers questions",
    instructions: "Keep the secret: 0451.",
    model: "demo/echo",
    tools: ["add"],
    subAgents: ["writer"],
    memory: false,
  },
  writer: { name: "Writer", instructions: "Write.", model: "demo/echo", memory: false },
};
const MANIFEST = { ...manifestWith({}, { tools: { add: { use: "add" } }, version: "2.3.4" }), agents: AGENTS };
const SECRET = "a-secret-of-more-than-32-characters!";
const SECURED = { auth: { mode: "authNext", provider: { use: "jwt", secret: SECRET } } };
const KEY = { "x-console-access-key": "the-key" };

async function cardAt(service: TestService, path: string, headers: Record<string, string> = {}): Promise<Served> {
  const reply = await service.get(path, headers);
  assert.equal(reply.status, 200);
  return (await reply.json()) as Served;
}

let service: TestService;
before(async (t) => {
  service = await startService(t as TestContext, MANIFEST);
});

const NEW = { "a2a-version": "1.0" };
/** Fields of a card that only 0.3 has, at its top. */
const OLD_FIELDS = ["url", "preferredTransport", "protocolVersion", "security"];

test("GET /agents/:id/card is the card in the envelope; under /.well-known it stands bare, the first agent's too", async () => {
  const { success, data } = (await (await service.get("/agents/desk/card")).json()) as Record<string, unknown>;
  assert.equal(success, true);
  assert.deepEqual(await cardAt(service, "/.well-known/desk/agent-card.json"), data);
  assert.deepEqual(await cardAt(service, "/.well-known/agent-card.json"), data);
  assert.equal((await cardAt(service, "/.well-known/writer/agent-card.json")).name, "Writer");
});

test("GET /a2a/:id/.well-known/agent-card.json is the card of that agent, for clients that look below its own address", async (t) => {
  for (const id of ["desk", "writer"]) {
    const card = await cardAt(service, `/.well-known/${id}/agent-card.json`);
    const base = new URL(`${new URL(card.supportedInterfaces[0]!.url).pathname}/`, service.url);
    const { pathname } = new URL(".well-known/agent-card.json", base);
    assert.deepEqual(await cardAt(service, pathname), card);
  }
  assert.equal((await service.get("/a2a/nobody/.well-known/agent-card.json")).status, 404);
  const env = { ...process.env, SERVICE_CONSOLE_ACCESS_KEY: KEY["x-console-access-key"], NODE_ENV: "production" };
  const secured = await startService(t, { ...MANIFEST, ...SECURED }, { env });
  for (const path of ["/.well-known/desk/agent-card.json", "/a2a/desk/.well-known/agent-card.json"]) {
    assert.equal((await secured.get(path)).status, 401, path);
    assert.equal((await secured.get(path, KEY)).status, 200, path);
  }
});

test("GET /.well-known/:id/agent-card.json: a reader of A2A 1.0 finds all that the protocol asks for, and loses nothing of it", async () => {
  const served = await cardAt(service, "/.well-known/desk/agent-card.json");
  const read = AgentCard.toJSON(AgentCard.fromJSON(served)) as Record<string, unknown>;
  const { url, preferredTransport, protocolVersion, ...own } = served;
  assert.deepEqual(read, own, "beside 1.0 there are the fields of 0.3 and nothing else");
  assert.deepEqual(read, {
    name: "Desk",
    description: "Answers questions",
    version: "2.3.4",
    supportedInterfaces: ["1.0", "0.3"].map((version) => ({
      url: `${service.url}/a2a/desk`,
      protocolBinding: "JSONRPC",
      protocolVersion: version,
    })),
    capabilities: { streaming: true, pushNotifications: false },
    defaultInputModes: ["text/plain", "application/json"],
    defaultOutputModes: ["text/plain"],
    skills: [
      { id: "agent:desk", name: "Desk", description: "Answers questions", tags: ["agent"] },
      { id: "tool:add", name: "add", description: "Adds two numbers", tags: ["tool", "math"] },
      { id: "agent:writer", name: "Writer", description: "Writer", tags: ["agent", "delegate"] },
    ],
  });
});

test("GET /.well-known/:id/agent-card.json: a reader of 0.3 finds its fields in the same card", async () => {
  const { supportedInterfaces, ...old } = await cardAt(service, "/.well-known/desk/agent-card.json");
  assert.equal(isLegacyAgentCard(old), true);
  const read = parseLegacyAgentCard(old);
  assert.deepEqual(
    read.supportedInterfaces.map(({ url, protocolBinding, protocolVersion }) => [
      url,
      protocolBinding,
      protocolVersion,
    ]),
    [[`${service.url}/a2a/desk`, "JSONRPC", "0.3.0"]],
  );
  assert.equal(read.capabilities?.streaming, true);
  assert.equal(read.skills.length, 3);
});

test("GET /.well-known/:id/agent-card.json: a client that says A2A-Version 1.0 gets no key of 0.3, one that says 0.3 or nothing gets them beside", async (t) => {
  const env = { SERVICE_CONSOLE_ACCESS_KEY: "the-key" };
  const secured = await startService(t, { ...MANIFEST, ...SECURED }, { env });
  for (const path of ["/.well-known/desk/agent-card.json", "/a2a/desk/.well-known/agent-card.json"]) {
    const asks = (version?: string) => secured.get(path, { ...KEY, ...(version && { "a2a-version": version }) });
    const replies = await Promise.all(["1.0", "1.0.1", "0.3", undefined].map(asks));
    const [first, second, old, silent] = (await Promise.all(replies.map((reply) => reply.json()))) as Served[];
    assert.deepEqual(second, first);
    assert.deepEqual(silent, old);
    const { url, preferredTransport, protocolVersion, security, securitySchemes, ...rest } = old!;
    const { securitySchemes: schemes, ...own } = first!;
    assert.deepEqual(own, rest);
    const { httpAuthSecurityScheme, ...more } = securitySchemes!.userToken as Record<string, unknown>;
    assert.deepEqual(schemes, { userToken: { httpAuthSecurityScheme } });
    assert.deepEqual(Object.keys(more).sort(), ["description", "scheme", "type"]);
    for (const field of OLD_FIELDS) assert.equal(field in first!, false, field);
    const tags = replies.map(({ headers }) => headers.get("etag"));
    assert.deepEqual([tags[0] === tags[1], tags[2] === tags[3], tags[0] === tags[2]], [true, true, false]);
    for (const { headers } of replies) assert.match(headers.get("vary") ?? "", /a2a-version/i);
  }
  const { data } = (await (await secured.get("/agents/desk/card", { ...KEY, ...NEW })).json()) as { data: Served };
  for (const field of OLD_FIELDS) assert.equal(field in data, false, field);
});

test("GET /.well-known/:id/agent-card.json: instructions are in no card", async () => {
  for (const path of ["/agents/desk/card", "/.well-known/agent-card.json"])
    assert.doesNotMatch(await (await service.get(path)).text(), /0451|instructions/);
});

test("GET /.well-known/:id/agent-card.json: a bare card may be kept for five minutes, and is not sent to who has it", async () => {
  const path = "/.well-known/desk/agent-card.json";
  const { headers } = await service.get(path);
  assert.equal(headers.get("cache-control"), "private, max-age=300");
  const tag = headers.get("etag")!;
  const again = await service.get(path, { "if-none-match": `"other", W/${tag}` });
  assert.deepEqual([again.status, await again.text(), again.headers.get("etag")], [304, "", tag]);
  assert.equal((await service.get(path, { "if-none-match": '"other"' })).status, 200);
});

test("GET /.well-known/:id/agent-card.json: an agent that does not exist has no card: 404, in the envelope", async () => {
  for (const path of ["/agents/nobody/card", "/.well-known/nobody/agent-card.json"]) {
    const reply = await service.get(path);
    assert.equal(reply.status, 404);
    assert.deepEqual(await reply.json(), { success: false, error: 'agent "nobody" does not exist' });
  }
});

test("GET /.well-known/:id/agent-card.json: cards name the public address with its base path, and tokens where the call needs one; without the key they are 401", async (t) => {
  const manifest = { ...MANIFEST, ...SECURED, server: { publicUrl: "https://desk.example/base/" } };
  const service = await startService(t, manifest, { env: { SERVICE_CONSOLE_ACCESS_KEY: "the-key" } });
  const refused = await service.get("/.well-known/desk/agent-card.json");
  assert.deepEqual([refused.status, ((await refused.json()) as { success: boolean }).success], [401, false]);
  const served = await cardAt(service, "/.well-known/desk/agent-card.json", KEY);
  assert.equal(served.url, "https://desk.example/base/a2a/desk");
  const card = AgentCard.fromJSON(served);
  assert.equal(card.supportedInterfaces[0]?.url, served.url);
  assert.deepEqual(card.securityRequirements, [{ schemes: { userToken: { list: [] } } }]);
  assert.equal(card.securitySchemes.userToken?.scheme?.$case, "httpAuthSecurityScheme");
  const { supportedInterfaces, ...old } = served;
  const legacy = parseLegacyAgentCard(old);
  assert.deepEqual(legacy.securityRequirements, card.securityRequirements);
  assert.equal(legacy.securitySchemes.userToken?.scheme?.$case, "httpAuthSecurityScheme");
});

test("GET /.well-known/:id/agent-card.json: the card of an agent that anybody may call asks for nothing, whatever the others ask for", async (t) => {
  const auth = { ...SECURED.auth, publicRoutes: ["POST /a2a/writer", "GET /.well-known/*"] };
  const service = await startService(t, { ...MANIFEST, auth });
  const [open, closed] = await Promise.all(
    ["writer", "desk"].map((id) => cardAt(service, `/.well-known/${id}/agent-card.json`)),
  );
  assert.equal(open!.securityRequirements, undefined);
  assert.deepEqual(closed!.securityRequirements, [{ schemes: { userToken: { list: [] } } }]);
});

test("GET /.well-known/agent-card.json without agents is 404", async (t) => {
  const service = await startService(t, { name: "Empty" });
  const reply = await service.get("/.well-known/agent-card.json");
  assert.deepEqual([reply.status, await reply.json()], [404, { success: false, error: "the manifest has no agents" }]);
});
