import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { AgentPart } from "../../../core/agents/run/parts.ts";
import { ObjectSink } from "../../../core/agents/stream/object.ts";
import { assistant, caller, Events, usage } from "../../support/agents.ts";

const row = (index: number) => ({ id: index, name: `Row ${index}`, note: "a few words about it, é and ✓", ok: true });
const table = (rows: number) => ({ rows: Array.from({ length: rows }, (_, index) => row(index)) });

/** Pieces of the size of a token. */
const pieces = (text: string, length = 4) => text.match(new RegExp(`[^]{1,${length}}`, "g"))!;

interface Sent {
  at: number;
  bytes: number;
  value: unknown;
}

/** The reader of a stream, at a clock that only the test moves. */
function reader(t: TestContext) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let now = 0;
  const partials: Sent[] = [];
  const finals: unknown[] = [];
  const events = {
    closed: false,
    open: () => undefined,
    onLeave: () => undefined,
    send: (json: string) => {
      const event = JSON.parse(json);
      if (event.type === "partial")
        partials.push({ at: now, bytes: Buffer.byteLength(json), value: event.partialUpdate });
      else finals.push(event);
      return undefined;
    },
  };
  const sink = new ObjectSink(events);
  const advance = (milliseconds: number) => {
    for (let passed = 0; passed < milliseconds; passed += 5) {
      now += 5;
      t.mock.timers.tick(5);
    }
  };
  const says = (delta: string) => sink.part({ type: "text-delta", id: "1", delta });
  const finishes = (output: unknown) => {
    sink.part({ type: "finish-step", usage: usage(1, 1), finishReason: "stop" });
    sink.part({ type: "finish", finishReason: "stop", totalUsage: usage(1, 1), output } as AgentPart);
  };
  return { sink, partials, finals, advance, says, finishes };
}

/** Characters that went through JSON.parse and JSON.stringify while `run` did. */
function jsonWork(t: TestContext, run: () => void): number {
  let characters = 0;
  const { parse, stringify } = JSON;
  const parsing = t.mock.method(JSON, "parse", (text: string) => {
    characters += text.length;
    return parse(text);
  });
  const writing = t.mock.method(JSON, "stringify", (value: unknown) => {
    const text = stringify(value);
    characters += text?.length ?? 0;
    return text;
  });
  run();
  parsing.mock.restore();
  writing.mock.restore();
  return characters;
}

const total = (sent: readonly Sent[]) => sent.reduce((sum, { bytes }) => sum + bytes, 0);

test("partial objects: the beginning of a burst is sent at once, and the rest of it once", (t) => {
  const { partials, finals, says, finishes, advance } = reader(t);
  const object = table(600);
  const text = JSON.stringify(object);
  const work = jsonWork(t, () => {
    for (const piece of pieces(text)) says(piece);
  });
  assert.equal(partials.length, 1);
  assert.ok(work < text.length, `${work} characters of JSON for ${text.length}`);
  advance(1000);
  assert.equal(partials.length, 2);
  assert.deepEqual(partials[1]!.value, object);
  finishes(object);
  assert.equal(finals.length, 1);
});

test("partial objects: they are sent at most every 50 ms", (t) => {
  const { partials, says, advance } = reader(t);
  const text = JSON.stringify(table(2));
  for (const piece of pieces(text, 1)) {
    says(piece);
    advance(10);
  }
  advance(100);
  for (const [index, { at }] of partials.slice(1).entries()) assert.ok(at - partials[index]!.at >= 50);
  assert.ok(partials.length >= 10, `${partials.length} partials`);
  assert.ok(partials.at(-1)!.bytes > 0.8 * text.length, "the last one has nearly all that came");
});

test("partial objects: no more than ten bytes are sent for each that the model writes, however slowly", (t) => {
  for (const rows of [10, 60, 600]) {
    const { partials, says, advance } = reader(t);
    const text = JSON.stringify(table(rows));
    const work = jsonWork(t, () => {
      for (const piece of pieces(text)) {
        says(piece);
        advance(50);
      }
    });
    const [bytesIn, bytesOut] = [Buffer.byteLength(text), total(partials)];
    assert.ok(bytesOut <= 9 * bytesIn, `${bytesOut} bytes of partials for ${bytesIn}`);
    assert.ok(work <= 40 * bytesIn, `${work} characters of JSON for ${bytesIn}`);
    assert.ok(partials.length >= 15, `${partials.length} partials`);
    t.mock.timers.reset();
  }
});

test("partial objects: one of more than 64 KiB is sent at most twice a second", (t) => {
  const { partials, says, advance } = reader(t);
  for (const piece of pieces(JSON.stringify(table(4_000)), 200)) {
    says(piece);
    advance(20);
  }
  const large = partials.filter(({ bytes }) => bytes > 65 * 1024);
  assert.ok(large.length >= 5, `${large.length} of them`);
  for (const [index, { at }] of large.slice(1).entries()) assert.ok(at - large[index]!.at >= 500);
});

test("partial objects: an answer that cannot be sent is no more work than one that can", (t) => {
  const { says, advance } = reader(t);
  const text = `{"a": [1,], "b": ${JSON.stringify(table(200))}`;
  const work = jsonWork(t, () => {
    for (const piece of pieces(text)) {
      says(piece);
      advance(50);
    }
  });
  assert.ok(work <= 20 * text.length, `${work} characters of JSON for ${text.length}`);
});

test("partial objects: thoughts, fences and brackets of the prose are left out", (t) => {
  const { partials, says, advance } = reader(t);
  for (const piece of pieces('<think>{"no": 1}</think>It is [as I said]:\n```json\n{"a": 1, "b": "xyz"}\n```', 2)) {
    says(piece);
    advance(50);
  }
  for (const { value } of partials) assert.deepEqual(Object.keys(value as object)[0], "a");
  assert.deepEqual(partials.at(-1)!.value, { a: 1, b: "xyz" });
});

test("partial objects: no timer is left once the run is over, whether it succeeded or failed", async (t) => {
  const events = new Events();
  const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  const agent = await assistant(t, {}, { replies: [{ object: table(3) }], provider: { chunks: 50 } });
  const schema = { type: "object" };
  const before = timers();
  await agent.streamObject({ input: "x", schema }, caller())(events);
  assert.equal(timers(), before);
  const impossible = { type: "object", required: ["never"] };
  await assert.rejects(agent.streamObject({ input: "x", schema: impossible }, caller())(events), /does not fit/);
  assert.equal(timers(), before);
  assert.equal(events.of("final").length, 1);
});
