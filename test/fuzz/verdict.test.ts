/** The judge of the wire fuzzer: what it lets pass, and what it does not. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { judgeEvents, judgeFrames, judgeReply } from "./verdict.ts";

const JSON_TYPE = "application/json; charset=utf-8";
const reply = (status: number, body: unknown, headers: Record<string, string> = {}) => ({
  status,
  headers: { "x-request-id": "a", "content-type": JSON_TYPE, ...headers },
  body: typeof body === "string" ? body : JSON.stringify(body),
});
const failed = (error: string) => ({ success: false, error });

test("the verdict on replies: the envelope, documented forms and failures of tools pass", () => {
  const good = [
    reply(200, { success: true, data: null }),
    reply(404, failed("unknown"), { "x-error-code": "not_found" }),
    reply(500, failed("no such order"), { "x-error-code": "tool_failed" }),
    reply(503, failed("full"), { "x-error-code": "unavailable", "retry-after": "1" }),
    reply(200, { jsonrpc: "2.0", id: 1, result: {} }),
    reply(200, "data: {}\n\n", { "content-type": "text/event-stream" }),
    { status: 400, headers: {}, body: "" },
    { status: 431, headers: {}, body: JSON.stringify(failed("too large")) },
  ];
  for (const each of good) assert.equal(judgeReply(each, false), null, JSON.stringify(each));
});

test("the verdict on replies: internal errors, half envelopes, foreign texts and wrong codes do not pass", () => {
  const bad = [
    reply(500, failed("internal error (request id a)"), { "x-error-code": "internal" }),
    reply(502, failed("x"), { "x-error-code": "provider_failed" }),
    reply(503, failed("full"), { "x-error-code": "unavailable" }),
    reply(404, failed("unknown"), { "x-error-code": "invalid_input" }),
    reply(404, { ...failed("unknown"), stack: "at x" }, { "x-error-code": "not_found" }),
    reply(200, failed("unknown"), { "x-error-code": "not_found" }),
    reply(400, { success: true, data: 1 }),
    reply(200, { success: true }),
    reply(200, '{"success":true,"da'),
    reply(400, "Bad Request", { "content-type": "text/plain" }),
    reply(204, "x"),
    { status: 400, headers: {}, body: "Expected Sec-WebSocket-Key" },
    { status: 200, headers: {}, body: "" },
  ];
  for (const each of bad) assert.notEqual(judgeReply(each, false), null, JSON.stringify(each));
});

test("the verdict on event streams and frames: broken events, masked frames and bytes behind the end do not pass", () => {
  assert.equal(judgeEvents(': beat\n\nid: 1\ndata: {"type":"x"}\n\ndata: [DONE]\n\n'), null);
  for (const text of ["data: {}\n", "data: 1\n\n", "what\n\n", 'data: {"error":"internal error (request id a)"}\n\n']) {
    assert.notEqual(judgeEvents(text), null, text);
  }
  const frames = (hex: string) => judgeFrames(Buffer.from(hex, "hex")).problem;
  assert.equal(frames("8103313233880203e8"), null);
  for (const hex of ["8183000000003132", "810161", "c1027b7d", "88021f40", "880203e88101", "8300"]) {
    assert.notEqual(frames(hex), null, hex);
  }
});
