/** Reading credentials: the console's key and bearer tokens. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { bearerToken, compileCredentials } from "../../../core/auth/credentials.ts";

const headOf = (headers: Record<string, string>, query = "") => ({
  query,
  header: (name: string) => headers[name] ?? "",
});

/** Around the size at which texts are compared, where what is cut must not pass for what is whole. */
const LENGTHS = [1, 32, 123, 124, 125, 126, 127, 128, 129, 400];
const MORE = ["x", "\0", "é", "€", "😀", "\ud800", "x".repeat(500), "😀".repeat(500)];

test("the console's key is itself and nothing else, whatever its length and whatever stands behind it", () => {
  for (const length of LENGTHS) {
    for (const end of ["", "é", "😀"]) {
      const key = "k".repeat(length) + end;
      const credentials = compileCredentials({ SERVICE_CONSOLE_ACCESS_KEY: key });
      const opens = (text: string) => credentials.isConsole(headOf({ "x-console-access-key": text }));
      assert.ok(opens(key), `${length}${end}`);
      for (const more of MORE) assert.ok(!opens(key + more), `${length}${end} and ${JSON.stringify(more.slice(0, 4))}`);
      for (const other of [key.slice(0, -1), key.slice(1), `K${key.slice(1)}`, `${key.slice(0, -1)}\0`, "\0", " "])
        assert.ok(!opens(other), `${length}${end}: ${JSON.stringify(other.slice(-8))}`);
      assert.ok(opens(key), "after others were compared");
      assert.ok(credentials.isConsole(headOf({}, `key=${encodeURIComponent(key)}`)), "in the query");
    }
  }
});

test("without a key in the environment nothing is the console's key", () => {
  for (const env of [{}, { SERVICE_CONSOLE_ACCESS_KEY: "" }]) {
    const credentials = compileCredentials(env);
    assert.equal(credentials.consoleKey, false);
    for (const text of ["", "\0", "undefined"]) {
      assert.equal(credentials.isConsole(headOf({ "x-console-access-key": text }, `key=${text}`)), false);
    }
  }
});

test("a token is what stands behind Bearer, in one piece", () => {
  const token = (authorization: string) => bearerToken(headOf({ authorization }));
  for (const text of ["Bearer a.b.c", "bearer a.b.c", "BEARER   a.b.c"]) assert.equal(token(text), "a.b.c", text);
  for (const text of ["", "Bearer", "Bearer ", "Bearera.b.c", "Basic a.b.c", " Bearer a", "Bearer a b", "Bearer a\tb"])
    assert.equal(token(text), null, JSON.stringify(text));
  assert.equal(token("Bearer a.b.c, Bearer d.e.f"), null, "a header that is repeated");
  assert.equal(token("Bearer a.b.c,Bearer"), null);
});
