import assert from "node:assert/strict";
import { test } from "node:test";
import type { Logger } from "pino";
import type { Dispatch, Exchange, Transport } from "../../core/http/exchange.ts";
import { chooseTransport, firstFault } from "../../core/transport/choose.ts";
import { createNodeTransport } from "../../core/transport/node.ts";
import { createUwsTransport } from "../../core/transport/uws.ts";
import { TRANSPORTS } from "../support/transports.ts";

const uws = TRANSPORTS.includes("uws");

/** A logger that keeps its warnings. */
function recorder(): { logger: Logger; warnings: string[] } {
  const warnings: string[] = [];
  return { logger: { warn: (message: string) => warnings.push(message) } as unknown as Logger, warnings };
}

test("server.transport node is taken without a word", async () => {
  const { logger, warnings } = recorder();
  assert.equal((await chooseTransport("node", "0.0.0.0", logger)).name, "node");
  assert.deepEqual(warnings, []);
});

if (uws) {
  test("server.transport uws is taken without a word, also where others can connect", async () => {
    const { logger, warnings } = recorder();
    assert.equal((await chooseTransport("uws", "0.0.0.0", logger)).name, "uws");
    assert.deepEqual(warnings, []);
  });

  for (const host of ["127.0.0.1", "localhost", "::1", "127.1.2.3"]) {
    test(`server.transport auto on ${host}: uws where it loads, without a word`, async () => {
      const { logger, warnings } = recorder();
      assert.equal((await chooseTransport("auto", host, logger)).name, "uws");
      assert.deepEqual(warnings, []);
    });
  }

  test("server.transport auto on a public host: what the probe says, with one warning when it fails", async () => {
    const { logger, warnings } = recorder();
    const passes = (await firstFault(await createUwsTransport())) === null;
    const { name } = await chooseTransport("auto", "0.0.0.0", logger);
    assert.equal(name, passes ? "uws" : "node");
    assert.equal(warnings.length, passes ? 0 : 1);
    if (!passes) assert.match(warnings[0]!, / (refuses a request line|never answers) .*server\.transport: uws/);
  });
} else {
  test("server.transport uws rejects where the addon does not load, and says why", async () => {
    const { logger } = recorder();
    await assert.rejects(chooseTransport("uws", "127.0.0.1", logger), /^Error: uWebSockets.js does not load on Node v/);
  });

  test("server.transport auto where the addon does not load: node, with one warning", async () => {
    const { logger, warnings } = recorder();
    assert.equal((await chooseTransport("auto", "127.0.0.1", logger)).name, "node");
    assert.equal(warnings.length, 1);
    assert.match(warnings[0]!, /uWebSockets.js does not load on Node v/);
  });
}

test("the probe finds no fault in node:http: a head in two segments, a name of other characters, 120 headers", async () => {
  assert.equal(await firstFault(createNodeTransport()), null);
});

test("the probe of a transport that cannot listen says so", async () => {
  const broken = { name: "node" as const, listen: () => Promise.reject(new Error("no")) };
  assert.equal(await firstFault(broken), "cannot listen on 127.0.0.1");
});

/** node:http with a fault of the addon: it stands in for binaries that have that one alone. */
function faulty(isFault: (exchange: Exchange) => boolean): Transport {
  const sound = createNodeTransport();
  const filter = (dispatch: Dispatch) => (exchange: Exchange) => {
    if (!isFault(exchange)) dispatch(exchange);
  };
  return { name: "uws", listen: (dispatch, options) => sound.listen(filter(dispatch), options) };
}

const FAULTS: readonly [fault: RegExp, isFault: (exchange: Exchange) => boolean][] = [
  [/^refuses a request line that arrives in two/, ({ path }) => path === "/split"],
  [
    /^never answers a header whose name has other/,
    (exchange) => Object.keys(exchange.headers()).some((name) => /[^a-z0-9-]/.test(name)),
  ],
  [/^never answers a request of a hundred headers/, (exchange) => exchange.header("x-many").length > 100],
];

for (const [fault, isFault] of FAULTS) {
  test(`the probe finds a transport that ${String(fault).slice(2, -1)}`, async () => {
    assert.match((await firstFault(faulty(isFault))) ?? "none", fault);
  });
}
