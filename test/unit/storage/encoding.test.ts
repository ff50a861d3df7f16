import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  checkKey,
  decodeNumber,
  encodeNumber,
  encodeText,
  keyBounds,
  NUMBER_LIMIT,
} from "../../../core/storage/keys.ts";

const anyText = fc.oneof(
  fc.string({ unit: "binary", maxLength: 300 }),
  fc.string({
    unit: fc.constantFrom("%", "2", "f", "u", "d", "8", "0", "/", "~", " ", "\ud83c", "\udf89", "é"),
    maxLength: 12,
  }),
);

test("text gives visible ASCII without a slash, at most 200 characters, for any string", () => {
  fc.assert(
    fc.property(anyText, (value) => {
      const part = encodeText(value);
      assert.match(part, /^[!-.0-~]{0,200}$/);
      if (part !== "") checkKey(`a/${part}/${part}`);
    }),
  );
  assert.equal(encodeText("ada.lovelace@example.com"), "ada.lovelace@example.com");
  assert.equal(encodeText("a b/c%é"), "a%20b%2fc%25%c3%a9");
  assert.equal(encodeText(""), "");
});

test("text gives different parts for different strings, long ones and halves of surrogate pairs included", () => {
  fc.assert(fc.property(anyText, anyText, (a, b) => assert.equal(encodeText(a) === encodeText(b), a === b)));
  const near = [
    "\ud800",
    "\udc00",
    "%ud800",
    "%d8%00",
    "�",
    "x".repeat(200),
    "x".repeat(201),
    "x".repeat(202),
    "ä".repeat(40),
    "ä".repeat(41),
  ];
  assert.equal(new Set(near.map(encodeText)).size, near.length);
  assert.equal(encodeText(encodeText("x".repeat(300))), encodeText("x".repeat(300)).replaceAll("%", "%25"));
});

test("number keeps order as text, and comes back", () => {
  const integer = fc.integer({ min: 0, max: NUMBER_LIMIT - 1 });
  fc.assert(
    fc.property(integer, integer, (a, b) => {
      assert.equal(encodeNumber(a) < encodeNumber(b), a < b);
      assert.equal(decodeNumber(encodeNumber(a)), a);
      assert.equal(encodeNumber(a).length, 9);
    }),
  );
  for (const value of [-1, 0.5, NUMBER_LIMIT, Number.NaN, Number.POSITIVE_INFINITY])
    assert.throws(() => encodeNumber(value), RangeError);
});

test("the bounds of a range take in its keys and no other", () => {
  const part = fc.string({ unit: fc.constantFrom("!", "/", "a", "~"), minLength: 1, maxLength: 4 });
  const bound = fc.option(part, { nil: undefined });
  fc.assert(
    fc.property(part, part, bound, bound, (key, prefix, after, before) => {
      const { low, high } = keyBounds({
        prefix,
        ...(after === undefined ? {} : { after }),
        ...(before === undefined ? {} : { before }),
      });
      const wanted =
        key.startsWith(prefix) && (after === undefined || key > after) && (before === undefined || key < before);
      assert.equal(key >= low && key < high, wanted);
    }),
    { numRuns: 2_000 },
  );
});
