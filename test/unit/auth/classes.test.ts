/** The access class of every route, by mode and lists. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ROUTES } from "../../../core/api/routes/index.ts";
import { accessClass, compileAccess } from "../../../core/auth/classes.ts";
import { describeAccess } from "../../../core/auth/document.ts";
import { fitPattern } from "../../../core/auth/match-patterns.ts";
import { parsePattern } from "../../../core/http/pattern.ts";
import type { AccessGroup } from "../../../core/http/route.ts";
import type { AuthManifest } from "../../../core/manifest/manifest.ts";
import { DEFAULT_CONSOLE_ROUTES, DEFAULT_PUBLIC_ROUTES, PROTECTED_ROUTES } from "../../../core/plugin/plugin.ts";

const DEFAULTS: AuthManifest = {
  mode: "authNext",
  publicRoutes: [],
  consoleRoutes: ["$defaults"],
  defaultPrivate: false,
  protectedRoutes: [],
  isolation: "user",
};
type Row = { method: string; path: string; group: AccessGroup };
const row = (text: string, group: AccessGroup = "custom"): Row => {
  const [method, path] = text.split(" ") as [string, string];
  return { method, path, group };
};
const CUSTOM = [row("GET /hello"), row("GET /orders/:id"), row("GET /observability/mine")];
const TABLE: Row[] = [...ROUTES, ...CUSTOM];
const accessOf = (auth: Partial<AuthManifest>, provided: string[] = []) =>
  compileAccess({ ...DEFAULTS, ...auth }, TABLE, provided);
const described = (auth: Partial<AuthManifest>, text: string, provided: string[] = []) => {
  const [method, path] = text.split(" ");
  const found = TABLE.find((each) => each.method === method && each.path === path);
  assert.ok(found !== undefined, text);
  return describeAccess(accessOf(auth, provided).of(found));
};

const HELD = [
  "GET /healthz",
  "GET /readyz",
  "GET /ui/:asset",
  "GET /console/:asset",
  "GET /docs/:asset",
  "GET /.well-known/jwks.json",
];
const isHeld = ({ method, path }: Row) => HELD.includes(`${method} ${path}`);

describe("classes of routes", () => {
  test("none: everything is public", () => {
    const access = accessOf({ mode: "none", publicRoutes: [], defaultPrivate: true });
    for (const each of TABLE) assert.equal(describeAccess(access.of(each)), "public");
    assert.equal(access.ofUnknown("GET", "/nowhere"), "public");
  });

  /** Users see what is their own, and the console all of it. */
  const isAnswer = ({ path }: { path: string }) => /^\/approvals|^\/agents\/:id\/runs/.test(path);

  test("authNext: groups have their documented default class", () => {
    for (const each of ROUTES.filter((route) => !isHeld(route))) {
      const expected = isAnswer(each) ? "console or user" : each.group === "execution" ? "user" : "console";
      assert.equal(described({}, `${each.method} ${each.path}`), expected, each.operation);
    }
    for (const text of HELD) assert.equal(described({ consoleRoutes: ["/**"] }, text), "public", text);
  });

  test("legacy: groups have their documented default class; suspend and resume are open", () => {
    const open = /^\/workflows\/.*\/(suspend|resume)$/;
    const classes: Record<string, string> = {
      execution: "user",
      observability: "console or user",
      updates: "console or user",
    };
    for (const each of ROUTES) {
      // The manifest and the store belong to no user.
      const own = ["/observability/manifest", "/observability/commands"].includes(each.path)
        ? "console"
        : classes[each.group];
      const usual = open.test(each.path) ? "public" : (own ?? "public");
      const expected = isAnswer(each) ? "console or user" : usual;
      for (const defaultPrivate of [false, true]) {
        const auth = { mode: "legacy", defaultPrivate } as const;
        assert.equal(described(auth, `${each.method} ${each.path}`), expected, each.operation);
      }
    }
  });

  test("every row of ours is in a list of legacy, or known to be in none: a new one cannot be forgotten", () => {
    const lists = [...DEFAULT_PUBLIC_ROUTES, ...PROTECTED_ROUTES].map(parsePattern);
    const forgotten = ROUTES.filter(
      (each) => !isHeld(each) && !lists.some((list) => fitPattern(list, each) === "always"),
    );
    assert.deepEqual(
      forgotten.map(({ operation }) => operation),
      ["workflows.suspend", "workflows.resume"],
    );
  });

  test("lists are exported, frozen, and share nothing but what a mode says twice", () => {
    for (const list of [DEFAULT_CONSOLE_ROUTES, DEFAULT_PUBLIC_ROUTES, PROTECTED_ROUTES]) {
      assert.ok(Object.isFrozen(list));
      assert.equal(new Set(list).size, list.length);
    }
    assert.deepEqual(
      PROTECTED_ROUTES.filter((text) => DEFAULT_PUBLIC_ROUTES.includes(text)),
      [],
    );
    assert.ok(PROTECTED_ROUTES.some((text) => text.endsWith("/cancel")));
    assert.ok(!PROTECTED_ROUTES.some((text) => /(suspend|resume)$/.test(text)));
    for (const text of ["POST /setup-observability", "GET /metrics"]) assert.ok(DEFAULT_CONSOLE_ROUTES.includes(text));
  });

  const CASES: [title: string, auth: Partial<AuthManifest>, route: string, expected: string, provided?: string[]][] = [
    ["a custom route is a user route", {}, "GET /hello", "user"],
    ...["manifest", "limits", "routes"].flatMap((view): typeof CASES => {
      const route = `GET /observability/${view}`;
      const title = `a wide pattern does not open ${route}`;
      return [
        ...["/**", "GET /*", "GET /observability/*", "/observability/:view", "/*/*"].map(
          (pattern): (typeof CASES)[number] => [title, { publicRoutes: [pattern] }, route, "console"],
        ),
        [`${title}, of the provider`, {}, route, "console", ["GET /**"]],
        [`its name opens ${route}`, { publicRoutes: [`/observability/${view}`] }, route, "public"],
      ];
    }),
    ["public routes of the manifest", { publicRoutes: ["GET /hello"] }, "GET /hello", "public"],
    ["of another method", { publicRoutes: ["POST /hello"] }, "GET /hello", "user"],
    ["those of the provider", {}, "GET /hello", "public", ["/hello"]],
    ["public wins over console", { publicRoutes: ["/agents"], consoleRoutes: ["/agents"] }, "GET /agents", "public"],
    ["console wins over user", { consoleRoutes: ["/orders/:id"] }, "GET /orders/:id", "console"],
    ["consoleRoutes replaces the defaults", { consoleRoutes: ["/hello"] }, "GET /agents", "user"],
    ["unless it has them", { consoleRoutes: ["/hello", "$defaults"] }, "GET /agents", "console"],
    ["a custom route below a default pattern", {}, "GET /observability/mine", "console"],
    ["$defaults of publicRoutes are the public list", { publicRoutes: ["$defaults"] }, "GET /agents", "public"],
    [
      "a literal for a parameter opens that path alone",
      { publicRoutes: ["POST /agents/support/*"] },
      "POST /agents/:id/text",
      "user; public: POST /agents/support/*",
    ],
    [
      "literals that change nothing are dropped",
      { consoleRoutes: ["/agents/support", "$defaults"] },
      "GET /agents/:id",
      "console",
    ],
    [
      "the pattern of a route with a literal is not about the one with a parameter",
      { publicRoutes: ["GET /workflows/executions"] },
      "GET /workflows/:id",
      "console",
    ],
    ["legacy: a custom route is public", { mode: "legacy" }, "GET /hello", "public"],
    ["legacy: with defaultPrivate it is not", { mode: "legacy", defaultPrivate: true }, "GET /hello", "user"],
    [
      "legacy: unless it is in a public list",
      { mode: "legacy", defaultPrivate: true, publicRoutes: ["/hello"] },
      "GET /hello",
      "public",
    ],
    ["legacy: that of the provider", { mode: "legacy", defaultPrivate: true }, "GET /hello", "public", ["/hello"]],
    ["legacy: observability", { mode: "legacy" }, "GET /observability/mine", "console or user"],
    ["legacy: protectedRoutes", { mode: "legacy", protectedRoutes: ["/hello"] }, "GET /hello", "user"],
    [
      "legacy: a default public route stays public",
      { mode: "legacy", protectedRoutes: ["/**"] },
      "GET /agents",
      "public",
    ],
    [
      "legacy: protectedRoutes secure suspend",
      { mode: "legacy", protectedRoutes: ["/workflows/**"] },
      "POST /workflows/:id/executions/:executionId/suspend",
      "user",
    ],
    ["legacy: consoleRoutes count for nothing", { mode: "legacy", consoleRoutes: ["/hello"] }, "GET /hello", "public"],
  ];
  for (const [title, auth, text, expected, provided] of CASES) {
    test(`${title}: ${text} is ${expected}`, () => assert.equal(described(auth, text, provided), expected));
  }
});

describe("classes of requests", () => {
  const access = accessOf({ publicRoutes: ["/orders/free", "/orders/a b"] });
  const order = access.of(row("GET /orders/:id"));

  test("a value is compared decoded, whole, and as it is written", () => {
    for (const raw of ["free", "%66ree", "a%20b"]) assert.equal(accessClass(order, [raw]), "public", raw);
    for (const raw of ["Free", "free%2F", "free%00", "%", "%zz", "%2566ree", ""])
      assert.equal(accessClass(order, [raw]), "user", raw);
  });

  test("what no route answers has the class of a custom route, or that of the route whose path it spells otherwise", () => {
    const UNKNOWN: [method: string, path: string, expected: string][] = [
      ["GET", "/nowhere", "user"],
      ["GET", "/observability/nowhere", "console"],
      ["GET", "/observability/", "user"],
      ["GET", "/observability/nowhere//", "console"],
      ["GET", "/observability", "user"],
      ["DELETE", "/agents", "user"],
      ["HEAD", "/api/logs", "console"],
      ["GET", "/api%2Flogs", "console"],
      ["GET", "/api/%6Cogs", "console"],
      ["GET", "//agents", "console"],
      ["GET", "/agents/", "console"],
      ["GET", "/AGENTS", "console"],
      ["GET", "/orders/free/../../agents/.", "console"],
      ["POST", "/agents", "user"],
      ["POST", "/agents/", "user"],
      ["GET", "/ORDERS/free", "public"],
      ["GET", "/ORDERS/Free/", "user"],
      ["GET", "/orders/a%20b/", "public"],
      ["GET", "/orders/free%2F", "user"],
      ["GET", "/orders//", "user"],
      ["GET", "/%", "user"],
      ["GET", "/orders/free", "public"],
    ];
    for (const [method, path, expected] of UNKNOWN)
      assert.equal(access.ofUnknown(method, path), expected, `${method} ${path}`);
    assert.equal(accessOf({ mode: "legacy" }).ofUnknown("GET", "/nowhere"), "public");
    assert.equal(accessOf({ mode: "legacy", defaultPrivate: true }).ofUnknown("GET", "/nowhere"), "user");
  });
});
