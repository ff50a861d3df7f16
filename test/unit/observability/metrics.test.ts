/** What metrics are counted with: numbers in place, under names that are known ahead. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { BOUNDS, bucketIndex, Durations, UNTIMED } from "../../../core/observability/metrics/durations.ts";
import { collectFamilies } from "../../../core/observability/metrics/exposition.ts";
import { Meters, NamedMeters, RequestMeter, Tally } from "../../../core/observability/metrics/meters.ts";
import { createRecentActivity } from "../../../core/observability/metrics/page.ts";

test("a duration counts in every bucket whose bound it does not pass, and in the endless one", () => {
  fc.assert(
    fc.property(fc.array(fc.double({ min: 0, max: 200_000, noNaN: true })), (milliseconds) => {
      const durations = new Durations();
      for (const each of milliseconds) durations.observe(each);
      const expected = [...BOUNDS, Number.POSITIVE_INFINITY].map(
        (bound) => milliseconds.filter((each) => each <= bound * 1000).length,
      );
      assert.deepEqual(durations.cumulative, expected);
      assert.equal(durations.count, milliseconds.length);
      const sum = milliseconds.reduce((total, each) => total + each, 0) / 1000;
      assert.ok(Math.abs(durations.sum - sum) <= sum * 1e-9);
    }),
  );
  assert.deepEqual([0, 1, 1.001, 60_000, 60_001].map(bucketIndex), [0, 0, 1, BOUNDS.length - 1, BOUNDS.length]);
});

test("of requests that are answered at once one in sixteen is timed, and stands for those that follow", () => {
  const meter = new RequestMeter("agents.list", "/agents", "GET");
  let timed = 0;
  for (let count = 0; count < 160; count++) {
    const begun = meter.durations.begin();
    if (begun) timed++;
    meter.finished(200, begun ? (timed <= 5 ? 0.5 : 20) : UNTIMED, false);
  }
  assert.equal(timed, 10);
  assert.equal(meter.durations.count, 160);
  assert.equal(meter.durations.cumulative[0], 80);
  assert.ok(Math.abs(meter.durations.sum - (80 * 0.5 + 80 * 20) / 1000) < 1e-9);
});

test("a request that waited is timed by itself, and stands for no other", () => {
  const meter = new RequestMeter("agents.list", "/agents", "GET");
  meter.finished(200, 0.5, false);
  meter.finished(200, 5_000, true);
  meter.finished(200, UNTIMED, false);
  assert.equal(meter.durations.count, 3);
  assert.ok(Math.abs(meter.durations.sum - 5.001) < 1e-9);
});

test("statuses count by their first digit, a client that has left by itself", () => {
  const meter = new RequestMeter("agents.list", "/agents", "GET");
  for (const status of [101, 200, 201, 304, 404, 499, 500, 503]) meter.finished(status, UNTIMED, false);
  const counts = Object.fromEntries(meter.statuses.outcomes.map((outcome) => [outcome, meter.statuses.of(outcome)]));
  assert.deepEqual(counts, { aborted: 1, "1xx": 1, "2xx": 2, "3xx": 1, "4xx": 1, "5xx": 2 });
});

test("names that nobody declared share one meter, whatever they are called", () => {
  const named = new NamedMeters(() => new Tally(["ok"] as const), ["a", "b"]);
  assert.deepEqual(
    named.entries.map(([name]) => name),
    ["a", "b"],
  );
  fc.assert(
    fc.property(fc.string(), (name) => {
      named.of(name).count("ok");
      assert.ok(named.entries.length <= 3);
    }),
  );
  named.of("__proto__").count("ok");
  named.of("a").count("ok");
  assert.deepEqual(
    named.entries.map(([name]) => name),
    ["a", "b", "other"],
  );
});

test("every family has a name and labels of Prometheus, a help of one line, and a counter's name ends in _total", () => {
  const meters = new Meters({ models: ["demo/echo"], agents: ["a"], tools: ["t"], workflows: ["w"] });
  meters.workflows.of("w").steps.declare(["one", "two/three"]);
  meters.ofRoute({ operation: "agents.list", path: "/agents", method: "GET" }).finished(200, 1, true);
  meters.add({ name: "sockets_open", help: "Now.", type: "gauge", read: () => 7 });
  const families = collectFamilies(meters);
  assert.equal(new Set(families.map(({ name }) => name)).size, families.length);
  for (const { name, help, type, samples } of families) {
    assert.match(name, /^penstock_[a-z_]+$/);
    assert.match(help, /^[^\n\\]+\.$/);
    if (type === "counter") assert.match(name, /_total$/);
    for (const { labels, value } of samples()) {
      for (const label of Object.keys(labels)) assert.match(label, /^[a-z]+$/);
      assert.ok(Number.isFinite(value));
    }
  }
});

test("activity is what was counted in each of the last sixty minutes, the last of which goes on; reads of the API are left out", () => {
  const meters = new Meters({ models: ["m"], agents: [], tools: [], workflows: [] });
  const run = meters.ofRoute({ operation: "agents.text", path: "/agents/:id/text", method: "POST" });
  const read = meters.ofRoute({ operation: "agents.list", path: "/agents", method: "GET" });
  const own = meters.ofRoute({ operation: "custom.hello", path: "/hello", method: "GET" });
  run.finished(200, UNTIMED, false);
  const activity = createRecentActivity(meters, 0);
  run.finished(200, UNTIMED, false);
  run.finished(500, UNTIMED, false);
  read.finished(200, UNTIMED, false);
  own.finished(200, UNTIMED, false);
  meters.models.of("m").used({ promptTokens: 5, completionTokens: 2, cost: 0.25 });
  activity.turn(60_000);
  run.finished(200, UNTIMED, false);
  assert.deepEqual(activity.minutes, [
    { from: "1970-01-01T00:00:00.000Z", requests: 3, failed: 1, inputTokens: 5, outputTokens: 2, cost: 0.25 },
    { from: "1970-01-01T00:01:00.000Z", requests: 1, failed: 0, inputTokens: 0, outputTokens: 0, cost: 0 },
  ]);
  for (let minute = 2; minute < 200; minute++) activity.turn(minute * 60_000);
  assert.equal(activity.minutes.length, 60);
  assert.equal(activity.minutes.at(-1)!.from, "1970-01-01T03:19:00.000Z");
});
