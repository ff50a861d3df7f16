/** However a path is written, it has the access class of the plain one: generated tables, lists and spellings. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { requestShape } from "../../../core/api/custom/routes.ts";
import { type AccessRules, accessClass, compileAccess } from "../../../core/auth/classes.ts";
import { compilePattern } from "../../../core/http/pattern.ts";
import { createRouter } from "../../../core/http/router.ts";
import { createSocketRouter } from "../../../core/http/socket-router.ts";
import type { AuthManifest } from "../../../core/manifest/manifest.ts";

const METHODS = ["GET", "POST"] as const;
const word = fc.constantFrom("a", "b", "harbours", "k\u00e4se", "a b");
const parameter = fc.constantFrom(":name", ":id");
const path = (segment: fc.Arbitrary<string>) =>
  fc.array(segment, { minLength: 1, maxLength: 3 }).map((segments) => `/${segments.join("/")}`);
const routePath = path(fc.oneof({ weight: 2, arbitrary: word.map(encodeURIComponent) }, parameter));
const route = fc.record({
  method: fc.constantFrom(...METHODS),
  path: routePath,
  group: fc.constant("custom" as const),
});
const table = fc.uniqueArray(route, { selector: requestShape, minLength: 1, maxLength: 6 });
const pattern = fc
  .tuple(
    fc.constantFrom("", "GET ", "POST "),
    fc.array(fc.oneof(word, parameter, fc.constant("*")), { minLength: 1, maxLength: 3 }),
    fc.constantFrom("", "/*", "/**"),
  )
  .map(([method, segments, end]) => `${method}/${segments.join("/")}${end}`);
const patterns = fc.array(pattern, { maxLength: 4 });
const auth = fc.record({
  mode: fc.constantFrom("authNext" as const, "legacy" as const),
  publicRoutes: patterns,
  consoleRoutes: patterns,
  protectedRoutes: patterns,
  defaultPrivate: fc.boolean(),
});

type Write = (segments: readonly string[]) => string;
const joined: Write = (segments) => `/${segments.join("/")}`;
const escapes = (text: string) => text.replace(/[a-z]/g, (letter) => `%${letter.charCodeAt(0).toString(16)}`);
const SPELLINGS: Record<string, Write> = {
  "a slash at the end": (segments) => `${joined(segments)}/`,
  "three slashes at the end": (segments) => `${joined(segments)}///`,
  "slashes before it": (segments) => `//${joined(segments)}`,
  "two slashes between all": (segments) => `/${segments.join("//")}`,
  "slashes in escapes": (segments) => `/${segments.join("%2F")}`,
  "an escaped slash at the end": (segments) => `${joined(segments)}%2f`,
  "dots between all": (segments) => `/${segments.join("/./")}`,
  "a dot in an escape": (segments) => `${joined(segments)}/%2E`,
  "up from elsewhere": (segments) => `/b/..${joined(segments)}`,
  "up from below, in escapes": (segments) => `${joined(segments)}/a/%2e%2e`,
  "up and an escaped slash": (segments) => `/x%2F..%2F${segments.join("/")}`,
  "up from above the root": (segments) => `/../..${joined(segments)}`,
  "escapes, and a slash": (segments) => `${joined(segments.map(escapes))}/`,
};
const spelling = fc.constantFrom(...Object.keys(SPELLINGS));

/** As a request sees it: the class of its route, or that of an unknown path. */
function compile(given: object, rows: readonly { method: string; path: string; group: "custom" }[]) {
  const access: AccessRules = compileAccess({ isolation: "user", ...given } as AuthManifest, rows);
  const router = createRouter(rows);
  return (method: string, target: string) => {
    const match = router.find(target);
    const row = match?.endpoint.methods.get(method);
    return row === undefined ? access.ofUnknown(method, target) : accessClass(access.of(row), match!.values);
  };
}

const RUNS = { numRuns: 3_000 };

describe("however a path is written", () => {
  test("its class is that of the plain path, whatever the table and the lists of auth are", () => {
    const property = fc.property(
      auth,
      table,
      fc.constantFrom(...METHODS),
      fc.oneof(
        fc.nat().map((index) => ({ index })),
        path(word).map((plain) => ({ plain })),
      ),
      spelling,
      (given, rows, method, aim, name) => {
        const plain =
          "plain" in aim ? aim.plain : rows[aim.index % rows.length]!.path.replace(/:\w+/g, () => "harbours");
        const segments = plain
          .slice(1)
          .split("/")
          .map((segment) => encodeURIComponent(decodeURIComponent(segment)));
        const classes = compile(given, rows);
        const written = SPELLINGS[name]!(segments);
        // What the router answers is another path: an escaped slash is part of the value of a parameter.
        fc.pre(createRouter(rows).find(written) === null);
        const [found, expected] = [classes(method, written), classes(method, joined(segments))];
        // Nobody knows whether `..` was resolved before: what either way is not public is not.
        if (expected !== "public" || !name.startsWith("up")) assert.equal(found, expected, `${name}: ${written}`);
      },
    );
    fc.assert(property, RUNS);
  });

  test("capitals in place of small letters do not change the class of a path of words", () => {
    const words = table.map((rows) => rows.filter((each) => !each.path.includes(":")));
    const property = fc.property(auth, words, fc.constantFrom(...METHODS), path(word), (given, rows, method, plain) => {
      const classes = compile(given, rows);
      const written = plain.slice(1).split("/").map(encodeURIComponent).join("/");
      const capitals = `/${decodeURIComponent(written).toUpperCase().split("/").map(encodeURIComponent).join("/")}`;
      assert.equal(classes(method, capitals), classes(method, `/${written}`), capitals);
    });
    fc.assert(property, RUNS);
  });

  test("no parameter of a pattern stands for nothing, be it of access or of CORS", () => {
    assert.equal(compilePattern("GET /harbours/:name").matches("GET", "/harbours/"), false);
    assert.equal(compilePattern("GET /harbours/:name/x").matches("GET", "/harbours//x"), false);
    const access = compileAccess(
      {
        mode: "authNext",
        publicRoutes: ["GET /harbours/:name"],
        consoleRoutes: ["GET /harbours"],
      } as unknown as AuthManifest,
      [{ method: "GET", path: "/harbours", group: "custom" }],
    );
    assert.equal(access.ofUnknown("GET", "/harbours/"), "console");
    assert.equal(access.ofUnknown("GET", "/harbours/x"), "public");
    assert.equal(access.ofUnknown("GET", "/harbours/x/"), "public");
  });

  test("a socket with an open end is found at the same depth whatever slashes are added, and nowhere by escaped ones", () => {
    const find = createSocketRouter([{ path: "/tree/**" }]);
    for (const written of ["/tree/a", "/tree/a/", "/tree//a", "/tree/a///"])
      assert.deepEqual(find(written)?.rest, ["a"], written);
    for (const written of ["/tree", "/tree/"]) assert.deepEqual(find(written)?.rest, [], written);
    for (const written of ["/tree/a%2Fb", "/tree/%2f", "/tree/a/..", "//tree"])
      assert.equal(find(written), null, written);
  });
});
