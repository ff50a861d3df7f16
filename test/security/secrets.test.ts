// biome-ignore-all lint/suspicious/noTemplateCurlyInString: placeholders of the manifest
/** Values from the environment stay out of logs, errors and documents, whoever repeats them. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, type TestContext, test } from "node:test";
import { eventually } from "../support/event-reader.ts";
import { startForeignServer } from "../support/mcp-server.ts";
import { failure } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { reload } from "../support/reload.ts";
import { dataOf, errorOf, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { SECRET, token } from "../support/tokens.ts";
import { waysThat } from "../support/ways-in.ts";
import { notes, pays, serveWays, toldSince } from "../support/ways-service.ts";

const KEY = "sk-test-3f9a61c2";

test("POST /agents/:id/text: a key that a model provider repeats in its error is masked in the log and kept from the client", async (t) => {
  const provider = { apiKey: "${TEST_KEY}" };
  const { service, upstream } = await serveUpstream(t, {}, { provider }, { env: { ...process.env, TEST_KEY: KEY } });
  upstream.replies(failure(401, { message: `Incorrect API key provided: ${KEY}.` }));
  const answer = await errorOf(service.post("/agents/assistant/text", { input: "x" }));
  assert.deepEqual(answer, { status: 500, error: "model provider failed: refused the request" });
  const log = JSON.stringify(service.log);
  assert.match(log, /Incorrect API key provided: \*\*\*/);
  assert.ok(!log.includes(KEY));
});

test("GET /doc, /, /agents, /tools and the errors of HTTP tools hold no value from the environment", async (t) => {
  const http = {
    method: "GET",
    url: "http://127.0.0.1:1/x?key=${TEST_KEY}",
    headers: { "x-key": "${TEST_KEY}" },
    retries: 0,
  };
  const tools = { shop: { description: "A shop", parameters: { type: "object" }, http } };
  const agent = { instructions: "The word is ${TEST_KEY}.", tools: ["shop"] };
  const rest = { tools, provider: { apiKey: "${TEST_KEY}" } };
  const { service } = await serveUpstream(t, agent, rest, { env: { ...process.env, TEST_KEY: KEY } });
  for (const path of ["/doc", "/", "/agents", "/agents/assistant", "/tools"])
    assert.ok(!(await (await service.get(path)).text()).includes(KEY), path);
  assert.deepEqual(await errorOf(service.post("/tools/shop/execute", { input: {} })), {
    status: 500,
    error: "shop could not be reached: ECONNREFUSED",
  });
  assert.ok(!JSON.stringify(service.log).includes(KEY));
});

const TOKEN = "up/stream+token~4c1a!?";
/** A token as servers and libraries repeat it: as it is, and in the forms in which it travels. */
const repeated = (token: string): string =>
  [
    token,
    encodeURIComponent(token),
    new URLSearchParams({ "": token }).toString().slice(1),
    JSON.stringify(token),
    ...["", "a:", "ab:", "abc:"].map((user) => Buffer.from(user + token).toString("base64")),
    Buffer.from(`svc:${encodeURIComponent(token)}`).toString("base64url"),
  ].join(" ");
const FORMS = repeated(TOKEN).split(" ");

/** Whether a text has the token in any form; of a base64 form the outermost characters may belong to what is beside it. */
const leaks = (text: string): string[] =>
  [TOKEN, ...FORMS.filter((form) => form.length > 8)].filter((form) => text.includes(form.slice(3, -3)));

/** An upstream that refuses every request, and repeats what it was sent. `/fine` answers with it. */
async function startEcho(t: Pick<TestContext, "after">): Promise<string> {
  const server = createServer((request, response) => {
    const token = request.headers.authorization?.replace(/^Bearer /, "") ?? "";
    response.writeHead(request.url === "/fine" ? 200 : 401, { "content-type": "text/plain" });
    response.end(`not taken: ${repeated(token)} for demo`);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => new Promise<void>((done) => void server.close(() => done())));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const http = (url: string) => ({
  method: "POST",
  url,
  headers: { authorization: "Bearer ${UPSTREAM}", "x-db": "${DB}" },
  retries: 0,
});
const ANY = { type: "object", properties: { amount: { type: "number" }, text: { type: "string" } } };

describe("the errors of tools, on every way in", () => {
  const over: (() => unknown)[] = [];
  let served: Awaited<ReturnType<typeof serveWays>>;
  before(async () => {
    const t = { after: (end: () => Promise<void>) => void over.push(end) };
    const tools = {
      pay: { description: "Refused upstream", parameters: ANY, http: http(await startEcho(t)) },
      note: { use: "throws" },
    };
    const plugin = `export default { kind: "tool", name: "throws",
      parameters: { type: "object", properties: { text: { type: "string" } } },
      execute() {
        const key = ${JSON.stringify(TOKEN)};
        throw Object.assign(new Error("no: " + key + " Basic " + btoa("svc:" + key)), { code: key });
      } };`;
    served = await serveWays(
      t,
      { tools },
      {
        plugins: { "tools/throws.mjs": plugin },
        env: { UPSTREAM: TOKEN, DB: "demo", OWN_SERVICE_KEY: TOKEN },
      },
    );
  });
  after(async () => {
    for (const end of over) await end();
  });

  for (const [name, way] of waysThat("tool"))
    for (const act of [pays(5), notes("x")])
      test(`${name}: what ${act.tool === "pay" ? "an HTTP tool's upstream" : "a plugin that throws"} repeats of a secret reaches neither client nor model nor log`, async () => {
        const { service, upstream } = served;
        const since = upstream.requests.length;
        const logged = service.log.length;
        const { text } = await way.tool(service, act, {});
        const told = toldSince(upstream, since);
        assert.match(
          text + told,
          name.includes("tap") ? /./ : act.tool === "pay" ? /not taken: .* for demo/ : /no: \*\*\*/,
        );
        assert.deepEqual([leaks(text), leaks(told), leaks(JSON.stringify(service.log.slice(logged)))], [[], [], []]);
      });

  test("GET /agents/:id/history, executions, A2A tasks and traces: no record of those calls has the secret", async () => {
    const { service } = served;
    const console = { "x-console-access-key": "the-key-of-the-console" };
    const read = async (path: string) => JSON.stringify(await dataOf(service.get(path, console)));
    const found: string[] = [];
    for (const agent of ["clerk", "chief"]) found.push(await read(`/agents/${agent}/history`));
    const { traces } = await dataOf(service.get("/observability/traces?limit=100", console));
    for (const { traceId } of traces) found.push(await read(`/observability/traces/${traceId}`));
    for (const workflow of ["pay", "note", "tap-pay", "asks"]) {
      for (const { id } of await dataOf(service.get(`/workflows/executions?workflowId=${workflow}`, console)))
        found.push(await read(`/workflows/${workflow}/executions/${id}/state`));
    }
    const all = found.join("\n");
    assert.match(all, /not taken: /);
    assert.deepEqual(leaks(all), []);
  });
});

test("POST /tools/:name/execute: results are not touched, and neither are models' words and short values that no name calls secret", async (t) => {
  const url = `${await startEcho(t)}/fine`;
  const env = { UPSTREAM: TOKEN, DB: "demo", SHORT_PASSWORD: "tiny" };
  const tools = { fine: { description: "Answers", parameters: ANY, http: http(url) } };
  const replies = [{ text: `the token is ${TOKEN}` }];
  const manifest = manifestWith({ tools: ["fine"] }, { tools, providers: { demo: { use: "scripted", replies } } });
  const service = await startService(t, manifest, { env });
  const { result } = await dataOf(service.post("/tools/fine/execute", { input: {} }));
  assert.equal(result, `not taken: ${repeated(TOKEN)} for demo`);
  const { text } = await dataOf(service.post("/agents/assistant/text", { input: "x" }));
  assert.equal(text, `the token is ${TOKEN}`);
});

test("POST /tools/:name/execute: a short secret is hidden in an error where its variable or its key names it as one", async (t) => {
  const plugin = `export default { kind: "tool", name: "throws", parameters: { type: "object" },
    execute() { throw new Error("tiny words of dbpw at postgres, for demo, PIN 4711"); } };`;
  const env = { SHORT_PASSWORD: "tiny", DATABASE: "postgres://ada:dbpw@localhost/x", DB: "demo", CODE: "4711" };
  const tools = { throws: { use: "throws" } };
  const more = {
    tools,
    providers: {
      demo: { use: "scripted" },
      up: { use: "openai-compatible", baseURL: "http://127.0.0.1:1", apiKey: "${CODE}", name: "${DB}" },
    },
  };
  const service = await startService(t, manifestWith({}, more), {
    env,
    plugins: [pluginFolder(t, { "tools/t.mjs": plugin })],
  });
  const { error } = await errorOf(service.post("/tools/throws/execute", { input: {} }));
  assert.equal(error, "*** words of *** at postgres, for demo, PIN ***");
});

test("POST /tools/:name/execute: a token endpoint that repeats the Basic header of an exchange is not passed on", async (t) => {
  const secret = "exchange+secret/9d2e";
  const endpoint = createServer((request, response) => {
    response.writeHead(400, { "content-type": "application/json" });
    const said = `${"x".repeat(120)} ${request.headers.authorization} ${secret}`;
    response.end(JSON.stringify({ error: "invalid_client", error_description: said }));
  });
  await new Promise<void>((done) => endpoint.listen(0, "127.0.0.1", done));
  t.after(() => endpoint.close());
  const url = `http://127.0.0.1:${(endpoint.address() as AddressInfo).port}`;
  const server = await startForeignServer(t, "current", async () => null);
  const tokenExchange = { url, clientId: "svc", clientSecret: "${EXCHANGE}", audience: "docs" };
  const docs = { url: server.url, auth: { tokenExchange } };
  const auth = { mode: "authNext", provider: { use: "jwt", secret: SECRET } };
  const service = await startService(t, manifestWith({}, { auth, mcp: { clients: { docs } } }), {
    env: { EXCHANGE: secret },
  });
  const headers = { authorization: `Bearer ${token({ sub: "ada" })}` };
  await eventually(
    async () => (await service.post("/tools/docs_whoami/execute", { input: {} }, headers)).status !== 404,
    "the tools of the server are known",
  );
  const { error } = await errorOf(service.post("/tools/docs_whoami/execute", { input: {} }, headers));
  assert.match(error, /exchange was refused: invalid_client .*Basic \w*\*\*\*/);
  const plain = Buffer.from(/Basic ([\w+/=]*)/.exec(error)![1]!, "base64").toString();
  assert.ok(!error.includes("secret") && !plain.includes("exch"), error);
});

test("POST /reload: a plugin that cannot be made repeats no secret of the environment to the client", async (t) => {
  const plugin = `export default { kind: "provider", name: "broken",
    create(config, host) { throw new Error("no licence for " + host.env.LICENCE_KEY); } };`;
  const plugins = [pluginFolder(t, { "providers/broken.mjs": plugin })];
  const service = await startService(t, manifestWith(), { env: { LICENCE_KEY: "lic-20f1c" }, plugins });
  const model = { model: ["demo/echo", "bad/x"] };
  const providers = { demo: { use: "scripted" }, bad: { use: "broken" } };
  const { status, error } = await reload(service, manifestWith(model, { providers }));
  assert.equal(status, 400);
  assert.match(error!, /no licence for \*\*\*/);
  assert.doesNotMatch(JSON.stringify(service.log), /20f1c/);
});
