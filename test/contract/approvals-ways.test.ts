/** Every way in to a tool: without a person's approval it runs on none of them, and it runs once after that. */
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { ran } from "../support/approvals.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";
import { waysThat } from "../support/ways-in.ts";
import { pays, serveWays } from "../support/ways-service.ts";

describe("a tool that needs approval", () => {
  let service: TestService;
  let amount = 0;
  const over: (() => unknown)[] = [];
  before(async () => {
    ({ service } = await serveWays({ after: (end: () => Promise<void>) => void over.push(end) }));
  });
  after(async () => {
    for (const end of over) await end();
  });
  beforeEach(() => {
    ran.splice(0);
    amount += 1;
  });

  for (const [name, { tool, after: how, goOn }] of waysThat("tool")) {
    test(`${name}: the tool does not run before a person has approved it, and once after that (${how})`, async () => {
      const call = async (headers = {}) => (await tool(service, pays(amount), { headers })).text;
      const first = await call();
      assert.match(first, /approval|completed/, "it is told");
      assert.deepEqual(ran, []);
      // Whatever a client says itself is no approval.
      await call({ "x-approval-id": "0".repeat(32) });
      assert.deepEqual(ran, []);
      const open: Loose[] = await dataOf(service.get("/approvals"));
      const mine = open.filter(({ input }) => input.amount === amount);
      for (const { approvalId } of mine) await dataOf(service.post(`/approvals/${approvalId}`, { approved: true }));
      const [{ approvalId }] = mine.length === 0 ? [{ approvalId: "" }] : mine;
      if (how === "same call with the id") await call({ "x-approval-id": approvalId });
      if (how === "by itself") {
        const all = mine.map(() => amount);
        await until(() => ran.length === mine.length, "all that have asked");
        if (goOn !== undefined) for (const asked of mine) await goOn(service, asked, {});
        assert.deepEqual(ran, all, "a client that goes on runs nothing again");
        return;
      }
      const once = how === "same call with the id" ? [amount] : [];
      assert.deepEqual(ran, once);
      if (once.length > 0) await call({ "x-approval-id": approvalId });
      assert.deepEqual(ran, once);
    });
  }
});
