import assert from "node:assert/strict";
import { test } from "node:test";
import type { Logger } from "pino";
import { chooseTransport } from "../../core/transport/choose.ts";
import { createNodeTransport } from "../../core/transport/node.ts";
import { passesSplitHead } from "../../core/transport/split-head-probe.ts";
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

test("server.transport uws is taken without a word, also where others can connect", { skip: !uws }, async () => {
  const { logger, warnings } = recorder();
  assert.equal((await chooseTransport("uws", "0.0.0.0", logger)).name, "uws");
  assert.deepEqual(warnings, []);
});

test("server.transport uws rejects where the addon does not load, and says why", { skip: uws }, async () => {
  const { logger } = recorder();
  await assert.rejects(chooseTransport("uws", "127.0.0.1", logger), /^Error: uWebSockets.js does not load on Node v/);
});

for (const host of ["127.0.0.1", "localhost", "::1", "127.1.2.3"]) {
  test(`server.transport auto on ${host}: uws where it loads, without a word`, { skip: !uws }, async () => {
    const { logger, warnings } = recorder();
    assert.equal((await chooseTransport("auto", host, logger)).name, "uws");
    assert.deepEqual(warnings, []);
  });
}

test("server.transport auto where the addon does not load: node, with one warning", { skip: uws }, async () => {
  const { logger, warnings } = recorder();
  assert.equal((await chooseTransport("auto", "127.0.0.1", logger)).name, "node");
  assert.equal(warnings.length, 1);
  assert.match(warnings[0]!, /uWebSockets.js does not load on Node v/);
});

test("server.transport auto on a public host: what the probe says, with one warning when it fails", {
  skip: !uws,
}, async () => {
  const { logger, warnings } = recorder();
  const passes = await passesSplitHead(await createUwsTransport());
  const { name } = await chooseTransport("auto", "0.0.0.0", logger);
  assert.equal(name, passes ? "uws" : "node");
  assert.equal(warnings.length, passes ? 0 : 1);
  if (!passes) assert.match(warnings[0]!, /two network packets.*server\.transport: uws/);
});

test("the probe passes a transport that takes a head in two segments", async () => {
  assert.equal(await passesSplitHead(createNodeTransport()), true);
});

test("the probe fails a transport that cannot listen", async () => {
  const broken = { name: "node" as const, listen: () => Promise.reject(new Error("no")) };
  assert.equal(await passesSplitHead(broken), false);
});
