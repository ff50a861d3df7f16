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
      for await (const piece of request) body += piece;
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
