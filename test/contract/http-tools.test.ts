/** Contract, "Tools": a REST call of the manifest as a tool, against a real server on the loopback. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, type TestContext, test } from "node:test";
import { dataOf, errorOf, type Loose } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";

const AGENT = { assistant: { model: "demo/echo", memory: false } };
const serve = (t: TestContext, rest: object) => startService(t, manifestWith({}, rest));

describe("a REST call as a tool", () => {
  interface Seen {
    method?: string;
    url?: string;
    headers: IncomingHttpHeaders;
    body: string;
  }

  /** A real server on the loopback that keeps what it gets. */
  async function shop(t: TestContext, answer: RequestListener) {
    const seen: Seen[] = [];
    const server = createServer(async (request, response) => {
      let body = "";
      for await (const piece of request.setEncoding("utf8")) body += piece;
      seen.push({ method: request.method, url: request.url, headers: request.headers, body });
      answer(request, response);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => {
      server.closeAllConnections();
      server.close();
    });
    return { seen, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
  }

  const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  const json: RequestListener = (_request, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end('{"weather":{"celsius":21}}');
  };
  const run = async (t: TestContext, tool: object, body: object) => {
    const service = await serve(t, {
      tools: { weather: { description: "Weather", parameters, ...tool } },
      agents: AGENT,
    });
    return service.post("/tools/weather/execute", body);
  };

  test("POST /tools/:name/execute encodes values for where they stand: path, query, header, JSON body", async (t) => {
    const { seen, url } = await shop(t, json);
    const http = {
      method: "POST",
      url: `${url}/cities/{{ input.city }}`,
      query: { q: "{{ input.city }}", lang: "{{ context.lang }}" },
      // biome-ignore lint/suspicious/noTemplateCurlyInString: the manifest's own syntax
      headers: { "x-city": "in {{ input.city }}", authorization: "Bearer ${SHOP_KEY:-s3cret}" },
      body: { city: "{{ input.city }}", days: 3 },
    };
    const city = 'São/"Paulo"?&';
    const reply = await run(
      t,
      { http, output: "{{ body.weather.celsius }}" },
      { input: { city }, context: { lang: "pt" } },
    );
    assert.equal((await dataOf(reply)).result, 21);
    const [request] = seen;
    assert.equal(request!.method, "POST");
    assert.equal(request!.url, `/cities/${encodeURIComponent(city)}?q=${encodeURIComponent(city)}&lang=pt`);
    assert.equal(Buffer.from(request!.headers["x-city"] as string, "latin1").toString("latin1"), `in ${city}`);
    assert.equal(request!.headers.authorization, "Bearer s3cret");
    assert.deepEqual(JSON.parse(request!.body), { city, days: 3 });
  });

  const TRACE = "0af7651916cd43dd8448eb211c80319c";
  const traceparent = `00-${TRACE}-b7ad6b7169203331-01`;
  const tracing = { traceparent, tracestate: "vendor=1,other=2" };

  /** One agent, one workflow and the API call the same tool. */
  const callers = (url: string, http: object, rest: object) =>
    manifestWith(
      { tools: ["look"], model: "demo/looks" },
      {
        providers: {
          demo: { use: "scripted", models: { looks: { replies: [{ call: { tool: "look" }, then: "done" }] } } },
        },
        tools: { look: { description: "Looks", http: { url, ...http } } },
        workflows: { w: { steps: [{ id: "a", andThen: { tool: "look", input: {} } }] } },
        ...rest,
      },
    );
  const WAYS: readonly [path: string, body: object][] = [
    ["/tools/look/execute", { input: {} }],
    ["/agents/assistant/text", { input: "Hi" }],
    ["/workflows/w/execute", { input: {} }],
  ];

  for (const [path, body] of WAYS)
    test(`POST ${path}: the request of a REST tool continues the caller's trace from the span of its call`, async (t) => {
      const { seen, url } = await shop(t, json);
      const service = await startService(t, callers(url, {}, {}));
      assert.equal((await service.post(path, body, tracing)).status, 200);
      const [, traceId, spanId, flags] = String(seen[0]!.headers.traceparent).split("-");
      assert.deepEqual([traceId, flags, seen[0]!.headers.tracestate], [TRACE, "01", tracing.tracestate]);
      const { spans } = await dataOf(await service.get(`/observability/traces/${TRACE}`));
      const span = spans.find((one: Loose) => one.spanId === spanId);
      assert.match(span.name, /look/);

      assert.equal((await service.post(path, body)).status, 200);
      assert.match(String(seen[1]!.headers.traceparent), /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
      assert.equal(seen[1]!.headers.tracestate, undefined);

      const unrecorded = { ...tracing, traceparent: traceparent.replace(/01$/, "00") };
      assert.equal((await service.post(path, body, unrecorded)).status, 200);
      const { headers } = seen[2]!;
      assert.deepEqual([headers.traceparent, headers.tracestate], [undefined, undefined]);
    });

  test("POST /tools/:name/execute: a REST tool sends no traceparent where nothing is traced, and its own where the manifest has one", async (t) => {
    const { seen, url } = await shop(t, json);
    const untraced = await startService(t, callers(url, {}, { observability: { sample: 0 } }));
    assert.equal((await untraced.post("/tools/look/execute", { input: {} }, tracing)).status, 200);
    assert.equal(seen[0]!.headers.traceparent, undefined);
    const own = await startService(t, callers(url, { headers: { TraceParent: "mine" } }, {}));
    assert.equal((await own.post("/tools/look/execute", { input: {} }, tracing)).status, 200);
    assert.deepEqual([seen[1]!.headers.traceparent, seen[1]!.headers.tracestate], ["mine", undefined]);
    const long = await startService(t, callers(url, {}, {}));
    await long.post("/tools/look/execute", { input: {} }, { ...tracing, tracestate: `a=${"x".repeat(600)}` });
    assert.deepEqual(
      [seen[2]!.headers.traceparent?.slice(0, 36), seen[2]!.headers.tracestate],
      [`00-${TRACE}-`, undefined],
    );
  });

  test("POST /tools/:name/execute: without output the result is the body of the answer", async (t) => {
    const { url } = await shop(t, json);
    const reply = await run(t, { http: { method: "GET", url } }, { input: { city: "Lisbon" } });
    assert.deepEqual((await dataOf(reply)).result, { weather: { celsius: 21 } });
  });

  const FAILURES: [title: string, answer: RequestListener, http: object, error: RegExp][] = [
    ["answers 404", (_, response) => response.writeHead(404).end("secret"), {}, /^weather answered 404$/],
    [
      "answers broken JSON",
      (_, response) => response.writeHead(200, { "content-type": "application/json" }).end("{"),
      {},
      /^weather answered with broken JSON$/,
    ],
    [
      "answers more than 1 MiB",
      (_, response) => response.end("x".repeat(1_100_000)),
      {},
      /^weather answered more than 1 MiB$/,
    ],
    [
      "does not answer in time",
      () => undefined,
      { timeout: "50ms", retries: 0 },
      /^weather did not answer within 50ms$/,
    ],
    [
      "leads to another server",
      (_, response) => response.writeHead(302, { location: "http://127.0.0.1:1/x" }).end(),
      {},
      /another server, which is not followed$/,
    ],
  ];
  for (const [title, answer, http, error] of FAILURES) {
    test(`POST /tools/:name/execute: a server that ${title} is 500, and says so without the server's text`, async (t) => {
      const { url } = await shop(t, answer);
      const reply = await run(t, { http: { method: "GET", url: `${url}/x`, ...http } }, { input: { city: "Lisbon" } });
      assert.equal(reply.headers.get("x-error-code"), "tool_failed");
      const failed = await errorOf(reply);
      assert.equal(failed.status, 500);
      assert.match(failed.error, error);
      assert.doesNotMatch(failed.error, /secret/);
    });
  }

  test("POST /tools/:name/execute: a value that would lead to another path is 500, and nothing is sent", async (t) => {
    const { seen, url } = await shop(t, json);
    const reply = await run(
      t,
      { http: { method: "GET", url: `${url}/cities/{{ input.city }}/now` } },
      { input: { city: ".." } },
    );
    assert.equal((await errorOf(reply)).status, 500);
    assert.equal(seen.length, 0);
  });

  test("POST /agents/:id/text: a model calls it like any other tool", async (t) => {
    const { url } = await shop(t, json);
    const replies = [
      {
        when: "weather in (.+)",
        call: { tool: "weather", input: { city: "{{ match[1] }}" } },
        then: "{{ result }} degrees",
      },
    ];
    const service = await serve(t, {
      providers: { demo: { use: "scripted", replies } },
      tools: { weather: { parameters, http: { method: "GET", url }, output: "{{ body.weather.celsius }}" } },
      agents: { assistant: { model: "demo/echo", tools: ["weather"], memory: false } },
    });
    const data: Loose = await dataOf(service.post("/agents/assistant/text", { input: "weather in Lisbon" }));
    assert.equal(data.text, "21 degrees");
    assert.equal(data.toolResults[0].output, 21);
  });
});
