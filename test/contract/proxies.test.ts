/** Calls that leave the process by a proxy: HTTP_PROXY, HTTPS_PROXY and NO_PROXY, or `server.proxy`. The names exist at the proxy alone. */
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, request, type Server } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/event-reader.ts";
import { startForeignServer } from "../support/mcp-server.ts";
import { npmProject, startRegistry } from "../support/npm-registry.ts";
import { calls, type OpenAIUpstream, says, startOpenAIUpstream } from "../support/openai-upstream.ts";
import { pushReceiver } from "../support/push-receiver.ts";
import { dataOf, errorOf, type Loose } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { startTokenIssuer } from "../support/token-issuer.ts";
import { SECRET, token } from "../support/tokens.ts";

const TEXT = "/agents/assistant/text";
const PDF = Buffer.from("%PDF-1.7 a file");

async function listen(t: TestContext, server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/**
 * A proxy that reaches one machine for all names, and the machine: the provider, and what else is called.
 *
 * @param behind servers by their names
 */
async function network(t: TestContext, behind: Readonly<Record<string, string>> = {}) {
  const upstream: OpenAIUpstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  const origin = new URL(upstream.origin);
  const seen: string[] = [];
  const port = await listen(
    t,
    createServer((incoming, reply) => {
      const { host, pathname } = new URL(incoming.url!);
      seen.push(`${incoming.method} ${host}${pathname} ${incoming.headers["proxy-authorization"] ?? ""}`.trim());
      if (host.startsWith("files.")) return void reply.writeHead(200, { "content-type": "application/pdf" }).end(PDF);
      if (host.startsWith("tools."))
        return void reply.writeHead(200, { "content-type": "application/json" }).end('{"of":"tool"}');
      const server = host.startsWith("models.") ? origin : behind[host];
      if (server === undefined) return void reply.writeHead(404).end();
      const onward = request(
        new URL(pathname, server),
        { method: incoming.method, headers: incoming.headers },
        (answer) => {
          reply.writeHead(answer.statusCode!, answer.headers);
          answer.pipe(reply);
        },
      );
      onward.on("error", () => reply.destroy());
      reply.on("close", () => onward.destroy());
      incoming.pipe(onward);
    }).on("connect", (incoming: IncomingMessage, socket) => {
      seen.push(`CONNECT ${incoming.url}`);
      socket.on("error", () => undefined);
      const onward = connect(Number(origin.port), "127.0.0.1", () => socket.write("HTTP/1.1 200 OK\r\n\r\n"));
      onward.on("error", () => socket.destroy());
      onward.pipe(socket).pipe(onward);
    }),
  );
  return { upstream, seen, proxy: `http://127.0.0.1:${port}` };
}

const provider = (baseURL: string) => ({ use: "openai-compatible", baseURL, apiKey: "x", retries: 0 });
const manifest = (rest: Loose = {}, agent: object = {}) =>
  manifestWith(
    { model: "up/m", memory: false, ...agent },
    { providers: { up: provider("http://models.example.invalid/v1") }, ...rest },
  );

for (const name of ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
  test(`POST /agents/:id/text reaches its provider by the proxy of ${name}, over and over, and as a stream`, async (t) => {
    const { seen, proxy } = await network(t);
    const address = new URL(proxy);
    const service = await startService(t, manifest(), { env: { [name]: `http://ada:secret@${address.host}` } });
    for (const path of [TEXT, "/agents/assistant/stream", TEXT]) {
      const reply = await service.post(path, { input: "Hello" });
      assert.match(await reply.text(), /Hello/);
    }
    const asked = `POST models.example.invalid/v1/chat/completions Basic ${Buffer.from("ada:secret").toString("base64")}`;
    assert.deepEqual(seen, [asked, asked, asked]);
    assert.doesNotMatch(JSON.stringify(service.log), /secret/);
  });

test("POST /agents/:id/text through a proxy: a client that leaves ends the call of its provider", async (t) => {
  const { upstream, proxy } = await network(t);
  const service = await startService(t, manifest(), { env: { HTTP_PROXY: proxy } });
  upstream.replies({ steps: [{ text: "Half" }, { stall: true }] });
  const leaving = new AbortController();
  const body = JSON.stringify({ input: "x" });
  const headers = { "content-type": "application/json" };
  const reply = await fetch(`${service.url}/agents/assistant/stream`, {
    method: "POST",
    headers,
    body,
    signal: leaving.signal,
  });
  await reply.body!.getReader().read();
  leaving.abort();
  await (await upstream.request(0)).aborted;
  assert.equal((await dataOf(service.post(TEXT, { input: "Next" }))).text, "Next");
});

test("POST /agents/:id/text goes to an https provider through a tunnel of HTTPS_PROXY, and directly to what NO_PROXY names", async (t) => {
  const { upstream, seen, proxy } = await network(t);
  const providers = { up: provider("https://models.example.invalid/v1"), near: provider(upstream.baseURL) };
  const agents = { near: { model: "near/m", memory: false }, assistant: { model: "up/m", memory: false } };
  const env = { HTTPS_PROXY: proxy, HTTP_PROXY: "http://127.0.0.1:9", no_proxy: "localhost, 127.0.0.1" };
  const service = await startService(t, { ...manifest({ providers }), agents }, { env });
  assert.equal((await dataOf(service.post("/agents/near/text", { input: "Near" }))).text, "Near");
  // Nobody speaks TLS behind this tunnel.
  await errorOf(service.post(TEXT, { input: "x" }));
  assert.deepEqual(seen, ["CONNECT models.example.invalid:443"]);
});

test("server.proxy of the manifest is the proxy, and off goes past that of the environment", async (t) => {
  const { upstream, seen, proxy } = await network(t);
  const named = await startService(t, manifest({ server: { proxy } }), { env: {} });
  assert.equal((await dataOf(named.post(TEXT, { input: "Hello" }))).text, "Hello");
  assert.equal(seen.length, 1);
  const providers = { up: provider(upstream.baseURL) };
  const direct = await startService(t, manifest({ server: { proxy: "off" }, providers }), {
    env: { HTTP_PROXY: proxy },
  });
  assert.equal((await dataOf(direct.post(TEXT, { input: "Hello" }))).text, "Hello");
  assert.equal(seen.length, 1);
});

test("an HTTP tool, a downloaded file, an MCP server, the keys of an identity provider and a collector of spans are reached by the proxy", async (t) => {
  const { upstream, seen, proxy } = await network(t);
  const service = await startService(
    t,
    manifest(
      {
        tools: { far: { description: "Far", http: { url: "http://tools.example.invalid/x" } } },
        mcp: { clients: { docs: { url: "http://mcp.example.invalid/mcp" } } },
        auth: { mode: "authNext", provider: { use: "jwt", jwks: "http://127.0.0.1:4999/keys" } },
        observability: { otlp: { endpoint: "http://spans.example.invalid" } },
      },
      { tools: ["far"] },
    ),
    { env: { HTTP_PROXY: proxy } },
  );
  const key = { "x-service-dev": "true" };
  upstream.replies(calls([{ name: "far" }]), says("Done."));
  const content = [{ type: "file", mediaType: "application/pdf", data: "http://files.example.invalid/a.pdf" }];
  await dataOf(service.post(TEXT, { input: [{ role: "user", content }] }, key));
  assert.match(JSON.stringify(upstream.requests[0]!.body), new RegExp(PDF.toString("base64")));
  assert.match(JSON.stringify(upstream.requests[1]!.body), /of.*tool/);
  await service.post(TEXT, { input: "x" }, { authorization: "Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.e30.AAAA" });
  const hosts = () => new Set(seen.map((line) => line.split(/[ /]/)[1]));
  await eventually(() => hosts().size === 6, "all of them were asked");
  assert.deepEqual([...hosts()].sort(), [
    "127.0.0.1:4999",
    "files.example.invalid",
    "mcp.example.invalid",
    "models.example.invalid",
    "spans.example.invalid",
    "tools.example.invalid",
  ]);
});

test("POST /agents/:id/text through a proxy: a file at a private address is refused, by its address and by its name", async (t) => {
  const { seen, proxy } = await network(t);
  const service = await startService(t, manifest(), { env: { HTTP_PROXY: proxy } });
  for (const host of ["10.0.0.1", "localhost", "[::1]"]) {
    const content = [{ type: "file", mediaType: "application/pdf", data: `http://${host}/a.pdf` }];
    const { status, error } = await errorOf(service.post(TEXT, { input: [{ role: "user", content }] }));
    assert.equal(status, 400);
    assert.match(error, /private address/);
  }
  assert.deepEqual(seen, []);
});

test("GET /updates asks the registry of npm by the proxy", async (t) => {
  const registry = await startRegistry(t, { tiny: ["1.0.0", "2.0.0"] });
  const { seen, proxy } = await network(t, { "registry.example.invalid": registry.url });
  const project = npmProject(
    t,
    "http://registry.example.invalid",
    { dependencies: { tiny: "^1.0.0" } },
    { tiny: "1.0.0" },
  );
  const env = { ...project.env, HTTP_PROXY: proxy };
  const service = await startService(t, manifest(), { project: project.folder, env });
  const { updates } = await dataOf(service.get("/updates"));
  assert.deepEqual(
    updates.map(({ name, latest }: Loose) => [name, latest]),
    [["tiny", "2.0.0"]],
  );
  assert.deepEqual(registry.asked, ["tiny"]);
  assert.ok(
    seen.every((line) => line.startsWith("GET registry.example.invalid/tiny")),
    seen.join("\n"),
  );
});

test("mcp.clients.X.auth: tokenExchange and the server of its tokens are reached by the proxy", async (t) => {
  const issuer = await startTokenIssuer(t, "docs");
  // The list of its tools is open to everybody.
  const docs = await startForeignServer(t, "current", async (asked) =>
    (await asked.clone().text()).includes('"tools/call"') ? issuer.guard(asked) : null,
  );
  // Only the proxy is asked for these addresses: nothing says that the loopback is near.
  const hosts = [issuer.url, docs.url].map((url) => new URL(url).host);
  const { seen, proxy } = await network(t, { [hosts[0]!]: issuer.url, [hosts[1]!]: docs.url });
  const { id: clientId, secret: clientSecret } = issuer.client;
  const tokenExchange = { url: issuer.url, clientId, clientSecret, audience: "docs", scope: "docs.read" };
  const { url } = docs;
  const service = await startService(
    t,
    manifest({
      mcp: { clients: { docs: { url, auth: { tokenExchange } } } },
      auth: { mode: "authNext", provider: { use: "jwt", secret: SECRET } },
    }),
    { env: { HTTP_PROXY: proxy } },
  );
  const headers = { authorization: `Bearer ${token({ sub: "ada" })}` };
  const call = async () => (await service.post("/tools/docs_whoami/execute", { input: {} }, headers)).text();
  await eventually(async () => /ada/.test(await call()), "the server is connected");
  assert.deepEqual(issuer.exchanged, ["ada"]);
  assert.deepEqual([...new Set(seen.map((line) => line.split(/[ /]/)[1]))].sort(), hosts.sort());
});

test("push notifications of A2A tasks are sent by the proxy, and not to a private address", async (t) => {
  const receiver = await pushReceiver(t);
  const { seen, proxy } = await network(t, { "hooks.example.invalid": receiver.url });
  const service = await startService(
    t,
    manifestWith({ model: "demo/echo", memory: false }, { server: { push: { enabled: true } } }),
    { env: { HTTP_PROXY: proxy } },
  );
  const send = async (url: string): Promise<Loose> => {
    const message = {
      messageId: `m-${Math.random()}`,
      role: "user",
      kind: "message",
      parts: [{ kind: "text", text: "Hi" }],
    };
    const params = { message, configuration: { blocking: true, pushNotificationConfig: { url } } };
    const reply = await service.post("/a2a/assistant", { jsonrpc: "2.0", id: 1, method: "message/send", params });
    return reply.json();
  };
  const { result, error } = await send("http://hooks.example.invalid/hook");
  assert.equal(error, undefined, JSON.stringify(error));
  await receiver.when(1);
  assert.equal(receiver.told[0]!.body.id ?? receiver.told[0]!.body.taskId ?? result.id, result.id);
  assert.ok(seen.length > 0 && seen.every((line) => line === "POST hooks.example.invalid/hook"), seen.join("\n"));
  assert.ok((await send("http://10.0.0.1/hook")).error);
});
