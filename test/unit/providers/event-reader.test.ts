/** Server-sent events from bytes that are cut anywhere. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { EventReader } from "../../../core/models/openai-compatible/chat-answer.ts";

function read(chunks: readonly Buffer[]): { events: string[]; rest: string | null } {
  const events: string[] = [];
  const reader = new EventReader((data) => events.push(data));
  for (const chunk of chunks) reader.push(chunk);
  return { events, rest: reader.end() };
}

/** The rules of the standard, on the whole text at once. */
function reference(text: string): { events: string[]; rest: string | null } {
  const events: string[] = [];
  let data: string[] = [];
  const lines = text.split(/\r\n|\r|\n/);
  for (const [index, line] of lines.entries()) {
    if (line === "" && index < lines.length - 1) {
      if (data.length > 0) events.push(data.join("\n"));
      data = [];
    }
    const [, value] = /^data(?::(?: ?)(.*))?$/s.exec(line) ?? [null, null];
    if (value !== null) data.push(value ?? "");
  }
  return { events, rest: data.length > 0 ? data.join("\n") : null };
}

const line = fc.oneof(
  fc.string({ unit: "grapheme" }).map((text) => `data: ${text.replace(/[\r\n]/g, "")}`),
  fc.string({ unit: "grapheme" }).map((text) => `data:${text.replace(/[\r\n]/g, "")}`),
  fc.constantFrom("data", "data:", ": comment", "event: x", "id: 1", "dat", "database: 1", "data : x", "", "", ""),
);
const stream = fc
  .array(fc.tuple(line, fc.constantFrom("\n", "\r\n", "\r")))
  .map((lines) => lines.flat().join(""))
  .chain((text) => fc.tuple(fc.constant(text), fc.boolean()))
  .map(([text, cutLast]) => (cutLast ? text.slice(0, -1) : text));

test("an EventReader reads any stream as the standard says, wherever its bytes are cut", () => {
  fc.assert(
    fc.property(stream, fc.array(fc.nat(2000)), (text, places) => {
      const bytes = Buffer.from(text);
      const cuts = [...new Set(places.map((place) => place % (bytes.length + 1)))].sort((left, right) => left - right);
      const chunks = [0, ...cuts].map((from, index) => bytes.subarray(from, cuts[index] ?? bytes.length));
      const expected = reference(bytes.toString());
      assert.deepEqual(read([bytes]), expected);
      assert.deepEqual(read(chunks), expected);
      assert.deepEqual(read(Array.from(bytes, (byte) => Buffer.from([byte]))), expected);
    }),
    { numRuns: process.env.PENSTOCK_FUZZ === "long" ? 20_000 : 500 },
  );
});

test("an EventReader takes bytes that are no text at all, and reads on", () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 50 })), (garbage) => {
      const events = [Buffer.from("\n\ndata: x\n\n")];
      assert.ok(read([...garbage.map((bytes) => Buffer.from(bytes)), ...events]).events.includes("x"));
    }),
  );
});

test("a line in many chunks costs an EventReader no more than one in few: its pieces are joined once", () => {
  const length = 8 * 1024 * 1024;
  const small = Array.from({ length: length / 64 }, () => Buffer.alloc(64, "x"));
  const { events } = read([Buffer.from("data: "), ...small, Buffer.from("\n\n")]);
  assert.equal(events[0]?.length, length);
});
