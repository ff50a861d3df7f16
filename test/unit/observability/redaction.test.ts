/** What spans carry of content: no credential, no card number and no address survives, whatever stands around it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isSecretName } from "../../../core/lib/secrets.ts";
import { createCleaner, MAX_CONTENT_CHARACTERS } from "../../../core/observability/content.ts";
import { redact } from "../../../core/observability/redaction.ts";
import { leastCost } from "../../support/growth.ts";
import { tracing } from "../../support/trace-sink.ts";

const redacted = createCleaner("redacted", ["s3cret-of-the-manifest"]);

/** What is planted, and the part of it that must not be seen again. */
const PLANTED: readonly (readonly [text: string, secret: string])[] = [
  ["Bearer mF_9.B5f-4.1JqM", "mF_9.B5f-4.1JqM"],
  ["authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "QWxhZGRpbjpvcGVuIHNlc2FtZQ"],
  ["Basic dXNlcjpwYXNzd29yZDE=", "dXNlcjpwYXNzd29yZDE"],
  [
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "dozjgNryP4J3jVmNHl0w5N",
  ],
  ["sk-proj-Ab12Cd34Ef56Gh78Ij90", "Ab12Cd34Ef56"],
  ["sk-ant-api03-Xy9_Zw8Vu7Ts6", "Xy9_Zw8Vu7"],
  ["sk_live_4eC39HqLyjWDarjtT1zdp7dc", "4eC39HqLyjWD"],
  ["ghp_16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F292c"],
  ["github_pat_11ABCDEFG0123456789_abcdef", "11ABCDEFG0123"],
  ["xoxb-123456789012-abcdefGHIJKL", "123456789012-abc"],
  ["glpat-1a2B3c4D5e6F7g8H9i0J", "1a2B3c4D5e"],
  ["AKIAIOSFODNN7EXAMPLE", "IOSFODNN7EX"],
  ["AIzaSyA1234567890abcdefghijklmnopqrstu", "SyA1234567890"],
  ["password=hunter2!", "hunter2"],
  ['"password": "correct horse battery"', "correct horse"],
  ['{\\"client_secret\\":\\"abc def\\"}', "abc def"],
  ["api_key: 0123456789abcdef", "0123456789abcdef"],
  ["https://api.example/v1?token=abcDEF123&x=1", "abcDEF123"],
  ["https://maps.example/?q=1&key=zzTOP99", "zzTOP99"],
  ["postgres://penstock:pa55w0rd@db.example/x", "pa55w0rd"],
  ["Set-Cookie: sid=31d4d96e407aad42; Path=/", "31d4d96e407aad42"],
  ["my password is Tr0ub4dor&3", "Tr0ub4dor"],
  ["4111 1111 1111 1111", "1111 1111"],
  ["5500-0000-0000-0004", "0000-0004"],
  ["378282246310005", "378282246310005"],
  ["ada.lovelace+tea@mail.example.org", "lovelace"],
  ["-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----", "MIIEow"],
  ["s3cret-of-the-manifest", "of-the-manifest"],
];

/** Text that has nothing to do with what is planted, and does not grow together with it. */
const around = fc.string({ unit: fc.constantFrom(..."abcdef XYZ,.!?\n()[]<>äé漢 "), maxLength: 60 });

test("no planted secret survives in a text, wherever it stands", () => {
  fc.assert(
    fc.property(fc.constantFrom(...PLANTED), around, around, ([text, secret], before, after) => {
      const clean = redacted.content(`${before} ${text} ${after}`)!;
      assert.ok(!clean.includes(secret), clean);
    }),
    { numRuns: 3000 },
  );
});

test("nor in a value with anything around it, as a text, a name or inside JSON that is a text", () => {
  const place = fc.constantFrom<(text: string) => unknown>(
    (text) => [text],
    (text) => ({ note: text }),
    (text) => ({ [text]: 1 }),
    (text) => ({ deep: [{ deeper: { text } }] }),
    (text) => ({ json: JSON.stringify({ inner: [text] }) }),
    (text) => ({ toJSON: () => ({ text }) }),
  );
  fc.assert(
    fc.property(fc.constantFrom(...PLANTED), place, fc.jsonValue({ maxDepth: 3 }), ([text, secret], put, other) => {
      const clean = redacted.content([other, put(text)])!;
      assert.ok(clean.length >= MAX_CONTENT_CHARACTERS || !clean.includes(secret), clean);
      assert.ok(!clean.includes(secret), clean);
    }),
    { numRuns: 2000 },
  );
});

test("nor where a long value is cut in the middle of it", () => {
  for (const [text, secret] of PLANTED) {
    for (let shift = 0; shift <= text.length + 4; shift++) {
      const long = `${"x ".repeat(MAX_CONTENT_CHARACTERS)}`.slice(0, MAX_CONTENT_CHARACTERS - shift);
      for (const value of [`${long} ${text} ${"y ".repeat(500)}`, [`${long} ${text} ${"y ".repeat(500)}`]]) {
        const clean = redacted.content(value)!;
        assert.ok(!clean.includes(secret), `${text}, ${shift} before the cut`);
        // No more than the first figures, which tell nothing.
        if (/^\d/.test(text)) assert.ok(!clean.slice(-12).match(/\d/), clean.slice(-40));
      }
    }
  }
});

test("what a name gives away is blanked whatever it is", () => {
  const names = [
    "password",
    "PASSWORD",
    "dbPassword",
    "db_passwd",
    "authorization",
    "Proxy-Authorization",
    "cookie",
    "Set-Cookie",
    "apiKey",
    "api_key",
    "X-Api-Key",
    "x-console-access-key",
    "secret",
    "client_secret",
    "secrets",
    "token",
    "accessToken",
    "refresh_token",
    "private key",
    "AWS_SECRET_ACCESS_KEY",
    "credentials",
    "cvc",
    "service.secret.key",
  ];
  for (const name of names) {
    assert.ok(isSecretName(name), name);
    for (const value of ["plain", 12345, true, ["a"], { b: "plain" }]) {
      assert.equal(redacted.content({ a: { [name]: value } }), JSON.stringify({ a: { [name]: "[redacted]" } }));
    }
  }
  const harmless = {
    promptTokens: 5,
    max_tokens: 7,
    key: "k",
    keyboard: 1,
    secretary: "Ada",
    passenger: "Bob",
    author: "C",
  };
  assert.equal(redacted.content(harmless), JSON.stringify(harmless));
});

test("what looks alike stays: numbers, dates, ids, prose, packages", () => {
  for (const text of [
    "Order A-1002 of 2026-11-20 costs 12.50 EUR: 3 pieces, tokens: 512, total_tokens=7",
    "0af7651916cd43dd8448eb211c80319c 1763641101234 1234567890123456",
    "basic information on npm-package-manager and sk-learn-something",
    "https://shop.example/orders?page=2#top is the address",
    '{"keys":["a"],"keyboard":"qwerty","n":3.141592653589793}',
  ])
    assert.equal(redact(text), text);
});

test("card numbers are blanked as numbers too, and only those that are one", () => {
  assert.equal(redacted.content({ card: 4111111111111111 }), '{"card":"[redacted]"}');
  assert.equal(redacted.content({ card: 4111111111111112 }), '{"card":4111111111111112}');
});

test("content is bounded, and what it costs does not depend on how much there was", () => {
  const hostile = [
    "sk-".repeat(400_000),
    "a@".repeat(500_000),
    "4 ".repeat(500_000),
    "4".repeat(1_000_000),
    "eyJ".repeat(400_000),
    "://a:".repeat(200_000),
    'password="'.repeat(100_000),
    "-----BEGIN ".repeat(90_000),
    "a".repeat(1_000_000),
    "basic ".repeat(150_000),
    "ghp_".repeat(250_000),
    "4444 ".repeat(200_000),
    "cookie:".repeat(150_000),
    "x-_".repeat(300_000),
    "a.".repeat(500_000),
    "Bearer ".repeat(150_000),
    '\\"'.repeat(500_000),
    "a@b.".repeat(250_000),
  ];
  for (const text of hostile) {
    for (const value of [text, [text], { [text]: text }, Array(2000).fill(text)]) {
      const clean = redacted.content(value)!;
      const took = leastCost(text, () => redacted.content(value), 500);
      assert.ok(clean.length <= 2 * MAX_CONTENT_CHARACTERS + 700, `${clean.length} characters`);
      assert.ok(took < 500, `${JSON.stringify(text.slice(0, 12))} took ${took} ms`);
    }
  }
});

test("any value has some text: circles, getters that throw, bytes, functions, big numbers", () => {
  const circle: Record<string, unknown> = {};
  circle.self = circle;
  const bad = {
    get trap(): never {
      throw new Error("no");
    },
  };
  for (const value of [
    circle,
    bad,
    new Uint8Array(5),
    () => 1,
    10n,
    Number.NaN,
    Symbol("x"),
    null,
    new Date(0),
    new Map(),
  ]) {
    const text = redacted.content(value);
    assert.equal(typeof text, "string");
    assert.ok(text!.length <= 2 * MAX_CONTENT_CHARACTERS);
  }
  assert.equal(redacted.content(undefined), undefined);
  assert.equal(redacted.content(new Date(0)), '"1970-01-01T00:00:00.000Z"');
});

test("of what is written the JSON is what it was, where there is nothing to blank and it is short", () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 4 }), (value) => {
      const plain = createCleaner("full", []);
      if (typeof value === "string") return;
      assert.equal(plain.content(value), JSON.stringify(value));
    }),
  );
});

test("none keeps no content, but the message of an error, without its secrets", () => {
  const none = createCleaner("none", []);
  assert.equal(none.content("hello"), undefined);
  assert.equal(none.message("refused for Bearer abc.def.ghi1"), "refused for Bearer [redacted]");
  assert.ok(none.message("x".repeat(10_000)).length <= 513);
});

test("observability.content full keeps what was said, up to a bound", () => {
  const full = createCleaner("full", ["s3cret-of-the-manifest"]);
  assert.equal(full.content("password=hunter2"), "password=hunter2");
  assert.equal(full.message("refused s3cret-of-the-manifest"), "refused [redacted]", "an error is no content");
  assert.ok(full.content("x".repeat(1_000_000))!.length <= MAX_CONTENT_CHARACTERS + 1);
});

test("no secret reaches a sink: content, errors and what sinks are handed", () => {
  for (const [text, secret] of PLANTED) {
    const { tracer, sink } = tracing({ secrets: ["s3cret-of-the-manifest"] });
    const root = tracer.begin("run", 0, { type: "agent", id: "a", name: "A" })!;
    root.content("input", { said: text });
    root.child("tool", 0).fail("tool_failed", `it said ${text}`);
    root.finish();
    assert.ok(!JSON.stringify(sink.only).includes(JSON.stringify(secret).slice(1, -1)), text);
  }
});

test("secrets of the manifest are found as JSON and addresses write them, and however long they are", () => {
  const lines = 'first "line"\nsecond line';
  const cleaner = createCleaner("redacted", [lines]);
  for (const text of [JSON.stringify({ lines }), encodeURIComponent(lines)]) {
    assert.doesNotMatch(cleaner.content(text)!, /first|second/);
  }
  const long = Array.from({ length: 60 }, (_, index) => `part${index}`).join("/");
  for (const limited of [createCleaner("redacted", [long]), createCleaner("none", [long])]) {
    for (let before = 0; before < 600; before += 20) {
      const about = (most: number) => `${" ".repeat(most - before)}${long}${" ".repeat(1000)}`;
      assert.doesNotMatch(limited.content(about(MAX_CONTENT_CHARACTERS)) ?? "", /part/);
      assert.doesNotMatch(limited.message(about(600)), /part/);
    }
  }
});

test("values are secret by the name beside them too, as in lists of headers, and in the plural", () => {
  const headers = [
    ["authorization", "one-hidden"],
    { name: "Set-Cookie", value: "two-hidden" },
    { key: "X-Api-Key", value: "three-hidden" },
  ];
  const value = {
    headers,
    passwords: ["four-hidden"],
    accessTokens: ["five-hidden"],
    tokens: 7,
    pair: ["tea", "shown"],
  };
  const text = redacted.content(value)!;
  assert.doesNotMatch(text, /hidden/);
  assert.match(text, /"tokens":7,"pair":\["tea","shown"\]/);
});
