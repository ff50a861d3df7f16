/** Access patterns compared with routes at boot. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { belongsToOtherRoute, fitPattern, type PatternFit } from "../../../core/auth/match-patterns.ts";
import { parsePattern, patternProblem } from "../../../core/http/pattern.ts";

const route = (text: string) => {
  const [method, path] = text.split(" ") as [string, string];
  return { method, path };
};

const FOLDS: [pattern: string, route: string, fold: PatternFit][] = [
  ["GET /agents", "GET /agents", "always"],
  ["/agents", "GET /agents", "always"],
  ["POST /agents", "GET /agents", "never"],
  ["WS /agents", "GET /agents", "never"],
  ["/agents", "GET /agents/:id", "never"],
  ["/Agents", "GET /agents", "never"],
  ["/", "GET /", "always"],
  ["/", "GET /agents", "never"],
  ["/*", "GET /", "never"],
  ["/*", "GET /agents/:id/history", "always"],
  ["/**", "GET /", "always"],
  ["/agents/:id", "GET /agents/:name", "always"],
  ["/agents/:id", "GET /agents/list", "always"],
  ["/agents/*", "GET /agents", "never"],
  ["/agents/**", "GET /agents", "always"],
  ["/agents/**", "GET /agentsx", "never"],
  ["/agents/*", "GET /agents/:id", "always"],
  ["GET /agents/*", "GET /agents/:id/history", "always"],
  ["/agents/*/history", "GET /agents/:id/history", "always"],
  ["/agents/*/history", "GET /agents/:id/card", "never"],
  ["/agents/support", "GET /agents/:id", [{ parameter: 0, value: "support" }]],
  ["/agents/support/*", "POST /agents/:id/text", [{ parameter: 0, value: "support" }]],
  ["/agents/support/*", "GET /agents/:id", "never"],
  ["/agents/support/**", "GET /agents/:id", [{ parameter: 0, value: "support" }]],
  [
    "/workflows/w/executions/:id/state",
    "GET /workflows/:id/executions/:executionId/state",
    [{ parameter: 0, value: "w" }],
  ],
  ["/workflows/:id/executions/e/*", "GET /workflows/:id/executions/:executionId/state", [{ parameter: 1, value: "e" }]],
  [
    "/workflows/w/executions/e/state",
    "GET /workflows/:id/executions/:executionId/state",
    [
      { parameter: 0, value: "w" },
      { parameter: 1, value: "e" },
    ],
  ],
  ["/käse", "GET /k%C3%A4se", "always"],
  ["/workflows/w/runs/e/state", "GET /workflows/:id/executions/:executionId/state", "never"],
];

describe("a pattern and a route", () => {
  for (const [pattern, path, fold] of FOLDS) {
    const what = typeof fold === "string" ? `${fold} matches` : "matches some paths of";
    test(`${pattern} ${what} ${path}`, () => assert.deepEqual(fitPattern(parsePattern(pattern), route(path)), fold));
  }

  const TABLE = ["GET /workflows", "GET /workflows/:id", "GET /workflows/executions", "POST /workflows/:id/execute"];
  const isOther = (pattern: string, of: string) =>
    belongsToOtherRoute(parsePattern(pattern), route(of), TABLE.map(route));

  test("a pattern that spells out another route, which is found first, is not about this one", () => {
    assert.equal(isOther("GET /workflows/executions", "GET /workflows/:id"), true);
    assert.equal(isOther("/workflows/executions", "GET /workflows/:id"), true);
    assert.equal(isOther("/workflows/orders", "GET /workflows/:id"), false);
    assert.equal(isOther("/workflows/executions/execute", "POST /workflows/:id/execute"), false);
    assert.equal(isOther("GET /workflows/:id", "GET /workflows/:id"), false);
  });
});

describe("a pattern is refused", () => {
  const PROBLEMS: [pattern: unknown, problem: RegExp | null][] = [
    ["GET /agents/:id", null],
    ["/", null],
    ["/**", null],
    ["/a/*/b/**", null],
    ["WS /ws/**", null],
    ["agents", /must be a path/],
    ["get /agents", /must be a path/],
    [7, /must be a path/],
    ["HEAD /agents", /write GET/],
    ["OPTIONS /agents", /before access/],
    ["FETCH /agents", /not one of GET, POST/],
    ["/agents/", /empty segment/],
    ["//agents", /empty segment/],
    ["/a/**/b", /at the end only/],
    ["/admin*", /whole segment/],
    ["/agents/:", /empty parameter name/],
    ["/agents/../tools", /segment \. or \.\./],
    ["/a%20b", /decoded path/],
    ["/agents?key=1", /decoded path/],
  ];
  for (const [pattern, problem] of PROBLEMS) {
    test(problem === null ? `not when it is ${pattern}` : `when it is ${pattern}: ${problem.source}`, () => {
      const found = patternProblem(pattern);
      if (problem === null) assert.equal(found, null);
      else assert.match(found ?? "", problem);
    });
  }
});
