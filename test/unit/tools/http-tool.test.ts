import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import type { HttpToolManifest, ToolManifest } from "../../../core/manifest/manifest.ts";
import { createHost } from "../../../core/registry/host.ts";
import { Registry } from "../../../core/registry/registry.ts";
import { compileTools } from "../../../core/tools/compile.ts";
import { executeTool } from "../../../core/tools/execute.ts";
import { onPort } from "../../support/ports.ts";
import { origin, silent } from "../../support/tools.ts";

interface Upstream {
  url: string;
  seen: { method: string; url: string; headers: IncomingMessage["headers"]; body: string }[];
  sockets: Set<Socket>;
  server: Server;
}

type Answer = (request: IncomingMessage, response: ServerResponse, count: number) => void;

/** A real server on loopback that records what it gets. */
async function upstream(t: TestContext, answer: Answer, port = 0) {
  const seen: Upstream["seen"] = [];
  const sockets = new Set<Socket>();
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request.setEncoding("utf8")) body += chunk;
    seen.push({ method: request.method!, url: request.url!, headers: request.headers, body });
    answer(request, response, seen.length);
  });
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    seen,
    sockets,
    server,
  } satisfies Upstream;
}

const json = (response: ServerResponse, value: unknown, status = 200, headers = {}) =>
  void response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(value));

type Http = Partial<HttpToolManifest> & { url: string };

function compile(t: TestContext, http: Http, rest: Partial<ToolManifest> = {}) {
  const host = createHost({ logger: silent, env: {} });
  t.after(() => host.close());
  const defaults = { method: "GET" as const, headers: {}, query: {}, body: null, timeout: 5000 as never, retries: 2 };
  const tools = { weather: { http: { ...defaults, ...http }, ...rest } };
  return compileTools({ tools } as never, new Registry([]), host);
}

function toolOf(t: TestContext, http: Http, rest: Partial<ToolManifest> = {}) {
  const { tools, problems } = compile(t, http, rest);
  assert.deepEqual(problems, []);
  const weather = tools.get("weather")!;
  return (input: unknown, change = {}, context = {}) =>
    executeTool(weather, input, origin(change, { context })) as Promise<unknown>;
}

const problemsOf = (t: TestContext, http: Http, rest: Partial<ToolManifest> = {}) =>
  compile(t, http, rest).problems.map(({ path, message }) => `${path.join(".")}: ${message}`);

const says = (message: string) => (error: Error) => assert.equal(error.message, message) === undefined;

test("the answer's JSON is the result, and output shapes it", async (t) => {
  const { url } = await upstream(t, (_request, response) =>
    json(response, { current: [{ temp: "21" }] }, 200, { "x-cache": "hit" }),
  );
  assert.deepEqual(await toolOf(t, { url })({}), { current: [{ temp: "21" }] });
  assert.equal(await toolOf(t, { url }, { output: "{{ body.current[0].temp }}" })({}), "21");
  const output = {
    city: "{{ input.city }}",
    status: "{{ status }}",
    cache: "{{ headers['x-cache'] }}",
    who: "{{ context.who }}",
  };
  const shaped = await toolOf(t, { url }, { output })({ city: "Bern" }, {}, { who: "me" });
  assert.deepEqual(shaped, { city: "Bern", status: 200, cache: "hit", who: "me" });
});

test("what a 4xx says is in the error, as text of a few KiB: the model learns what was wrong", async (t) => {
  const long = "x".repeat(100_000);
  const cases: [type: string, body: string, message: RegExp, headers?: object][] = [
    ["application/json", '{"error":"no such city"}', /^weather answered 404: \{"error":"no such city"\}$/],
    ["application/problem+json", '{"title":"é"}', /^weather answered 404: \{"title":"é"\}$/],
    ["text/plain", "  nothing here\n", /^weather answered 404: nothing here$/],
    ["text/plain", "", /^weather answered 404$/],
    ["image/png", "\x89PNG", /^weather answered 404$/],
    ["application/json", "{}", /^weather answered 404$/, { "content-encoding": "gzip" }],
    ["text/plain", long, /^weather answered 404: x{4096}… \(cut\)$/],
  ];
  for (const [type, body, message, headers = {}] of cases) {
    const { url, sockets } = await upstream(
      t,
      (_request, response) => void response.writeHead(404, { "content-type": type, ...headers }).end(body),
    );
    await assert.rejects(toolOf(t, { url })({}), ({ message: said }: Error) => {
      assert.match(said, message);
      return true;
    });
    assert.ok(sockets.size <= 1);
  }
});

test("what a 5xx says stays out of the error", async (t) => {
  const { url } = await upstream(t, (_request, response) => json(response, { trace: "at db.ts:1" }, 500));
  await assert.rejects(toolOf(t, { url })({}), says("weather answered 500"));
});

test("a 4xx whose body never ends is an error in time, with what has come of it", async (t) => {
  const { url } = await upstream(t, (_request, response) => {
    response.writeHead(400, { "content-type": "text/plain" }).write("y".repeat(64_000));
  });
  await assert.rejects(
    toolOf(t, { url, timeout: 60_000 as never })({}),
    says(`weather answered 400: ${"y".repeat(4096)}… (cut)`),
  );
});

test("the user of the request is in the expressions, in those of the output too", async (t) => {
  const { url, seen } = await upstream(t, (_request, response) => json(response, {}));
  const http = { url: `${url}/{{ user.id }}`, headers: { "x-user": "{{ user.name }}" } };
  const run = toolOf(t, http, { output: "{{ user.id }} {{ input.a }}" });
  assert.equal(await run({ a: 1 }, { user: { id: "ada", name: "Ada" } }), "ada 1");
  assert.deepEqual([seen[0]!.url, seen[0]!.headers["x-user"]], ["/ada", "Ada"]);
  await assert.rejects(run({ a: 1 }, { user: null }), /there is no "\w+" in user/);
});

test("an output that names a missing field is tool_failed and names the expression", async (t) => {
  const { url } = await upstream(t, (_request, response) => json(response, {}));
  await assert.rejects(
    toolOf(t, { url }, { output: "{{ body.temp }}" })({}),
    says('{{ body.temp }}: there is no "temp" in body'),
  );
});

test("text stays text, in its charset; JSON without a body is null; broken JSON is a failure", async (t) => {
  const { url } = await upstream(t, (request, response) => {
    if (request.url === "/text")
      response.setHeader("content-type", "text/plain; charset=latin1").end(Buffer.from("Z\xfcrich", "latin1"));
    if (request.url === "/empty") response.writeHead(204, { "content-type": "application/json" }).end();
    if (request.url === "/problem")
      json(response, { title: "x" }, 200, { "content-type": "application/problem+json; charset=utf-8" });
    if (request.url === "/broken") response.setHeader("content-type", "application/json").end("{");
    if (request.url === "/none") response.end("{}");
  });
  assert.equal(await toolOf(t, { url: `${url}/text` })({}), "Zürich");
  assert.equal(await toolOf(t, { url: `${url}/empty` })({}), null);
  assert.deepEqual(await toolOf(t, { url: `${url}/problem` })({}), { title: "x" });
  assert.equal(await toolOf(t, { url: `${url}/none` })({}), "{}");
  await assert.rejects(toolOf(t, { url: `${url}/broken` })({}), says("weather answered with broken JSON"));
});

test("values are encoded for the path segment and the query they stand in", async (t) => {
  const { url, seen } = await upstream(t, (_request, response) => json(response, 1));
  const ask = toolOf(t, {
    url: `${url}/city/{{ input.city }}/v{{ input.n }}?format=j1&q={{ input.city }}`,
    query: { list: ["{{ input.city }}", "b"], none: null, "a&b": "{{ input.object }}", flag: true },
  });
  await ask({ city: "a/../b?x=1&y#z %2F\\é\ud800", n: 2, object: { k: "=&" } });
  const city = "a%2F..%2Fb%3Fx%3D1%26y%23z%20%252F%5C%C3%A9%EF%BF%BD";
  assert.equal(
    seen[0]!.url,
    `/city/${city}/v2?format=j1&q=${city}&list=${city}&list=b&a%26b=%7B%22k%22%3A%22%3D%26%22%7D&flag=true`,
  );
});

test("a value that would lead to another path is refused before anything is sent", async (t) => {
  const { url, seen } = await upstream(t, (_request, response) => json(response, 1));
  const ask = toolOf(t, { url: `${url}/orders/{{ input.id }}/items` });
  await assert.rejects(ask({ id: ".." }), says('url: {{ input.id }} must not be ".."'));
  await assert.rejects(ask({ id: "." }), says('url: {{ input.id }} must not be "."'));
  await assert.rejects(ask({ id: "" }), says('url: {{ input.id }} must not be ""'));
  await assert.rejects(ask({ id: null }), says("url: {{ input.id }} must be text, a number or a boolean, not null"));
  await assert.rejects(ask({ id: ["a"] }), says("url: {{ input.id }} must be text, a number or a boolean, not a list"));
  await assert.rejects(
    toolOf(t, { url: `${url}/a/{{ input.id }}./b` })({ id: "." }),
    says('url: {{ input.id }} must not be ".."'),
  );
  await assert.rejects(
    toolOf(t, { url: `${url}/a/{{ input.id }}?b` })({ id: ".." }),
    says('url: {{ input.id }} must not be ".."'),
  );
  assert.equal(seen.length, 0);
});

test("headers take text without line breaks, and null leaves one out", async (t) => {
  const { url, seen } = await upstream(t, (_request, response) => json(response, 1));
  const ask = toolOf(t, {
    url,
    headers: { "X-City": "{{ input.city }}", "x-maybe": "{{ has(input.maybe) ? input.maybe : null }}" },
  });
  await ask({ city: "Zürich" });
  assert.equal(seen[0]!.headers["x-city"], "Zürich");
  assert.equal("x-maybe" in seen[0]!.headers, false);
  const refused = "headers.x-city must not contain line breaks, control characters or characters beyond Latin-1";
  for (const city of ["a\r\nx-admin: 1", "a\nb", "a\0b", "東京"]) await assert.rejects(ask({ city }), says(refused));
  assert.equal(seen.length, 1);
});

test("the body is JSON whatever the values hold, and keeps their types", async (t) => {
  const { url, seen } = await upstream(t, (_request, response) => json(response, 1));
  await toolOf(t, { url, method: "POST", body: { text: "Hi {{ input.name }}", n: "{{ input.n }}", fixed: [1, null] } })(
    { name: '"},"admin":{"', n: 2 },
  );
  assert.deepEqual(JSON.parse(seen[0]!.body), { text: 'Hi "},"admin":{"', n: 2, fixed: [1, null] });
  assert.equal(seen[0]!.headers["content-type"], "application/json");
  assert.equal(seen[0]!.headers["content-length"], String(Buffer.byteLength(seen[0]!.body)));
});

test("an input that does not fit parameters never reaches the server", async (t) => {
  const { url, seen } = await upstream(t, (_request, response) => json(response, 1));
  const parameters = {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  };
  const ask = toolOf(t, { url }, { parameters: parameters as never });
  assert.throws(() => ask({ town: 1 }), says("input.city is required; input.town is not a known key"));
  assert.throws(() => ask({ city: 1 }), says("input.city must be string"));
  assert.equal(seen.length, 0);
});

test("a status that is no success is a failure that says it", async (t) => {
  const { url, seen } = await upstream(t, (_request, response) => json(response, { city: "none" }, 404));
  await assert.rejects(toolOf(t, { url })({}), says('weather answered 404: {"city":"none"}'));
  assert.equal(seen.length, 1, "404 does not pass by itself");
});

test("a GET is tried again after 503 and after a cut connection, and then it works", async (t) => {
  const { url, seen } = await upstream(t, (request, response, n) => {
    if (n === 1) json(response, 0, 503);
    else if (n === 2) request.socket.destroy();
    else json(response, { n });
  });
  assert.deepEqual(await toolOf(t, { url })({}), { n: 3 });
  assert.equal(seen.length, 3);
});

test("a GET that keeps failing is given up after its retries", async (t) => {
  const { url, seen } = await upstream(t, (_request, response) => json(response, 0, 503, { "retry-after": "0" }));
  await assert.rejects(toolOf(t, { url, retries: 1 })({}), says("weather answered 503"));
  assert.equal(seen.length, 2);
});

test("a server that asks for a longer pause than we wait is given up at once", async (t) => {
  const { url, seen } = await upstream(t, (_request, response) => json(response, 0, 429, { "retry-after": "3600" }));
  await assert.rejects(toolOf(t, { url })({}), says("weather answered 429: 0"));
  assert.equal(seen.length, 1);
});

test("a POST is never sent twice once the server has it", async (t) => {
  const { url, seen } = await upstream(t, (request, response, n) => {
    if (n === 1) json(response, 0, 503);
    else request.socket.destroy();
  });
  const post = toolOf(t, { url, method: "POST", body: {} });
  await assert.rejects(post({}), says("weather answered 503"));
  await assert.rejects(post({}), /^ServiceError: weather could not be reached/);
  assert.equal(seen.length, 2);
});

test("a POST that no server took is tried again", async (t) => {
  const taking: Answer = (_request, response) => json(response, "taken");
  const { url, server, seen } = await onPort((port) => upstream(t, taking, port));
  const { port } = new URL(url);
  server.close();
  await once(server, "close");
  const result = toolOf(t, { url, method: "POST", body: {}, retries: 5 })({});
  await sleep(120);
  server.listen(Number(port), "127.0.0.1");
  assert.equal(await result, "taken");
  assert.equal(seen.length, 1);
});

test("an unreachable server is a failure with the system's code, and no address", async (t) => {
  const { url, server } = await onPort((port) => upstream(t, () => {}, port));
  server.close();
  await once(server, "close");
  await assert.rejects(toolOf(t, { url, retries: 0 })({}), says("weather could not be reached: ECONNREFUSED"));
});

test("a server that does not answer in time is a failure that says the limit", async (t) => {
  const { url, sockets } = await upstream(t, () => {});
  await assert.rejects(
    toolOf(t, { url, timeout: 50 as never, retries: 0 })({}),
    says("weather did not answer within 50ms"),
  );
  while (sockets.size > 0) await sleep(5);
});

test("a server that stops in the middle of its body runs into the same limit", async (t) => {
  const { url } = await upstream(
    t,
    (_request, response) => void response.writeHead(200, { "content-length": "10" }).write("12345"),
  );
  await assert.rejects(
    toolOf(t, { url, timeout: 50 as never, retries: 0 })({}),
    says("weather did not answer within 50ms"),
  );
});

test("the tool's own time limit ends the call and closes the socket", async (t) => {
  const { url, sockets } = await upstream(t, () => {});
  await assert.rejects(toolOf(t, { url }, { timeout: 50 as never })({}), says('tool "weather" timed out after 50ms'));
  while (sockets.size > 0) await sleep(5);
});

test("a client that leaves closes the socket to the server, and nothing is tried again", async (t) => {
  const { url, seen, sockets } = await upstream(t, () => {});
  const client = new AbortController();
  const result = toolOf(t, { url })({}, { signal: client.signal });
  while (seen.length === 0) await sleep(1);
  client.abort(new Error("the client has left"));
  await assert.rejects(result, /the client has left/);
  while (sockets.size > 0) await sleep(5);
  assert.equal(seen.length, 1);
});

test("a client that leaves during the pause between two tries ends the call", async (t) => {
  const { url, seen } = await upstream(t, (_request, response) => json(response, 0, 503, { "retry-after": "5" }));
  const client = new AbortController();
  const result = toolOf(t, { url })({}, { signal: client.signal });
  while (seen.length === 0) await sleep(1);
  await sleep(20);
  client.abort(new Error("the client has left"));
  await assert.rejects(result, /the client has left/);
  assert.equal(seen.length, 1);
});

test("an answer of more than 1 MiB is refused while it arrives, with or without a length", async (t) => {
  const { url } = await upstream(t, (request, response) => {
    if (request.url === "/long") return void response.end(Buffer.alloc(1_048_577));
    const more = () => {
      while (!response.destroyed && response.write(Buffer.alloc(65_536)));
      response.once("drain", more);
    };
    more();
  });
  await assert.rejects(toolOf(t, { url: `${url}/long` })({}), says("weather answered more than 1 MiB"));
  await assert.rejects(toolOf(t, { url: `${url}/endless` })({}), says("weather answered more than 1 MiB"));
  const exact = await upstream(t, (_request, response) => void response.end(Buffer.alloc(1_048_576, "a")));
  assert.equal(((await toolOf(t, { url: exact.url })({})) as string).length, 1_048_576);
});

test("no compressed answer is asked for, and one that comes is read, or refused where nobody knows its encoding", async (t) => {
  const { url, seen } = await upstream(t, (request, response) => {
    const isKnown = request.url === "/known";
    response.setHeader("content-encoding", isKnown ? "gzip" : "odd");
    response.end(isKnown ? gzipSync("read") : "x");
  });
  assert.equal(await toolOf(t, { url: `${url}/known` })({}), "read");
  await assert.rejects(toolOf(t, { url })({}), says("weather answered, but its content-encoding odd cannot be read"));
  assert.equal(seen[0]!.headers["accept-encoding"], undefined);
});

test("redirects within the server are followed with the headers, at most five", async (t) => {
  const { url, seen } = await upstream(t, (request, response) => {
    if (request.url === "/loop") response.writeHead(302, { location: "/loop" }).end();
    else if (request.url === "/a") response.writeHead(301, { location: "b?x=1" }).end();
    else json(response, { at: request.url });
  });
  const headers = { authorization: "Bearer secret" };
  assert.deepEqual(await toolOf(t, { url: `${url}/a`, headers })({}), { at: "/b?x=1" });
  assert.equal(seen[1]!.headers.authorization, "Bearer secret");
  await assert.rejects(toolOf(t, { url: `${url}/loop` })({}), says("weather redirects more than 5 times"));
  assert.equal(seen.length, 2 + 6);
});

test("a redirect to another server is not followed: our headers stay at home", async (t) => {
  const other = await upstream(t, (_request, response) => json(response, "stolen"));
  const { url } = await upstream(
    t,
    (_request, response) => void response.writeHead(302, { location: other.url }).end(),
  );
  const ask = toolOf(t, { url, headers: { authorization: "Bearer secret" } });
  await assert.rejects(ask({}), says(`weather redirects to ${other.url}, another server, which is not followed`));
  assert.equal(other.seen.length, 0);
});

test("after a POST, 303 and 302 fetch the result and 307 sends it again", async (t) => {
  const { url, seen } = await upstream(t, (request, response) => {
    const status = Number(request.url!.slice(1));
    if (status > 0) response.writeHead(status, { location: "/result" }).end();
    else json(response, request.method);
  });
  for (const [status, method] of [
    [303, "GET"],
    [302, "GET"],
    [307, "POST"],
    [308, "POST"],
  ] as const) {
    assert.equal(await toolOf(t, { url: `${url}/${status}`, method: "POST", body: { a: 1 } })({}), method);
    assert.equal(seen.at(-1)!.body, method === "POST" ? '{"a":1}' : "");
  }
});

test("a manifest that cannot work is refused at boot with the place", (t) => {
  const url = "https://example.com/";
  assert.deepEqual(problemsOf(t, { url: "https://{{ input.host }}/x" }), [
    "tools.weather.http.url: {{ input.host }}: scheme, host and port must not come from an expression",
  ]);
  assert.deepEqual(problemsOf(t, { url: "{{ input.url }}" }).length, 1);
  assert.deepEqual(problemsOf(t, { url: "https://example.com{{ input.path }}" }).length, 1);
  assert.deepEqual(problemsOf(t, { url: "https://a/#{{ input.x }}" }), [
    "tools.weather.http.url: {{ input.x }} comes after #, which is never sent",
  ]);
  assert.deepEqual(problemsOf(t, { url: "ftp://example.com/" }), [
    "tools.weather.http.url: must begin with http:// or https://, not ftp:",
  ]);
  assert.deepEqual(problemsOf(t, { url: "example.com/x" }), [
    "tools.weather.http.url: is not an address: write https://HOST/PATH",
  ]);
  assert.deepEqual(problemsOf(t, { url: "https://me:secret@example.com/" }), [
    "tools.weather.http.url: must not contain a user name or password: send them in headers.authorization",
  ]);
  assert.match(
    problemsOf(t, { url: `${url}{{ inptu.x }}` })[0]!,
    /^tools.weather.http.url: .*unknown name "inptu", did you mean "input"\?$/,
  );
  assert.deepEqual(problemsOf(t, { url, headers: { "a b": "x", "Content-Length": "1", "content-type": "text/xml" } }), [
    "tools.weather.http.headers.a b: is not a header name",
    "tools.weather.http.headers.Content-Length: is set by the client itself",
    "tools.weather.http.headers.content-type: must be a JSON type: bodies are sent as JSON",
  ]);
  assert.deepEqual(problemsOf(t, { url, body: { a: 1 } }), [
    "tools.weather.http.body: a GET has no body: use query, or another method",
  ]);
  assert.match(problemsOf(t, { url, query: { a: ["{{ input. }}"] } })[0]!, /^tools.weather.http.query.a.0: /);
  assert.match(
    problemsOf(t, { url }, { output: { t: "{{ bdy }}" } })[0]!,
    /^tools.weather.output.t: .*did you mean "body"\?$/,
  );
  assert.deepEqual(problemsOf(t, { url }, { parameters: { type: "objekt" } as never }), [
    'tools.weather.parameters: not a JSON Schema: type must be array, boolean, integer, null, number, object or string, not "objekt"',
  ]);
});
