/**
 * A model behind HTTP, as a process of its own, whose answers go wrong in one call of a hundred for every kind of fault. Each answer is
 * `answer N #S ... end`: N is the number that the question carries, S one that no other answer has. What it did is one line of JSON,
 * `gave {...}`, at its end.
 */
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createRandom } from "../../crash/model.ts";
import { eventsOf, type Step } from "../../support/openai-wire.ts";
import { FAULT_KINDS, FAULT_SHARE, type FaultKind } from "./faults.ts";

const random = createRandom(Number(process.argv[2]));
const gave: Record<string, number> = {};
let serial = 0;

interface Body {
  model: string;
  messages: { role: string; content: unknown }[];
  stream_options?: { include_usage?: boolean };
  response_format?: unknown;
}

const write = (response: ServerResponse, body: Body, steps: readonly Step[]) =>
  response.write(steps.flatMap((step) => eventsOf(step, body)).join(""));

function refuse(response: ServerResponse, status: number, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify({ error: { message: `upstream says ${status}`, type: "failed", code: "failed" } }));
}

/** What stands in the place of an event, or after one. */
const GARBAGE = [
  "data: {not json\n\n",
  "data: [1, 2]\n\ndata: null\n\n",
  `\0\xff${"x".repeat(5_000)}\n\n`,
  'data: {"choices": "none"}\n\n',
];

/** Each goes wrong before the first byte, or after a part of the answer. */
const FAULTS: Record<FaultKind, (response: ServerResponse, body: Body, begin: () => void) => void> = {
  reset: (response, _body, begin) => {
    begin();
    setImmediate(() => response.socket?.resetAndDestroy());
  },
  stall: (_response, _body, begin) => begin(),
  cut: (response, _body, begin) => {
    begin();
    // Without the last chunk, or with it and without the end of the answer.
    if (response.headersSent && random() < 0.5) response.end();
    else setImmediate(() => response.destroy());
  },
  429: (response) => refuse(response, 429, { "retry-after": "0" }),
  500: (response) => refuse(response, 500),
  garbage: (response, _body, begin) => {
    begin();
    if (!response.headersSent) response.writeHead(200, { "content-type": "text/html" }).end("<html>busy</html>");
    else response.end(`${GARBAGE[Math.floor(random() * GARBAGE.length)]}data: [DONE]\n\n`);
  },
};

function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  return Array.isArray(content) ? content.map((part) => part?.text ?? "").join("") : "";
}

function stepsOf(body: Body): Step[] {
  const spoken = body.messages.findLastIndex(({ role }) => role === "user");
  const [, number = "?", how = ""] = /ask (\d+)(?: (\w+))?/.exec(textOf(body.messages[spoken]?.content)) ?? [];
  const hasTools = body.messages.slice(spoken + 1).some(({ role }) => role === "tool");
  if (how === "tool" && !hasTools) {
    const call = { index: 0, id: "call_0", name: "lookup_order", arguments: '{"orderId":"A-1002"}' };
    return [{ call }, { finish: "tool_calls" }, { usage: {} }];
  }
  serial += 1;
  if (body.response_format !== undefined) return textSteps(JSON.stringify({ number: Number(number), serial }));
  return textSteps(`answer ${number} #${serial} ${"wörd ".repeat(random() * 40)}end`);
}

function textSteps(text: string): Step[] {
  const size = Math.ceil(text.length / (1 + Math.floor(random() * 8)));
  const pieces = text.match(new RegExp(`.{1,${size}}`, "gs")) ?? [];
  return [...pieces.map((piece): Step => ({ text: piece })), { finish: "stop" }, { usage: {} }];
}

/** A fault, or undefined for the answer as it should be. */
function chosenFault(): FaultKind | undefined {
  const at = Math.floor(random() / FAULT_SHARE);
  return FAULT_KINDS[at];
}

function answer(response: ServerResponse, body: Body): void {
  const fault = chosenFault();
  gave[fault ?? "answers"] = (gave[fault ?? "answers"] ?? 0) + 1;
  const steps = stepsOf(body);
  const begin = () => response.writeHead(200, { "content-type": "text/event-stream" });
  if (fault === undefined) {
    begin();
    write(response, body, [...steps, { done: true }]);
    response.end();
    return;
  }
  const part = random() < 0.5 ? [] : steps.slice(0, 1);
  FAULTS[fault](response, body, () => {
    if (part.length === 0) return;
    begin();
    write(response, body, part);
  });
}

const server = createServer((request, response) => {
  const pieces: Buffer[] = [];
  response.on("error", () => undefined);
  request.on("error", () => undefined);
  request.on("data", (piece: Buffer) => pieces.push(piece));
  request.on("end", () => answer(response, JSON.parse(Buffer.concat(pieces).toString())));
});
server.keepAliveTimeout = 60_000;
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  console.log(`upstream listens on http://127.0.0.1:${port}/v1: ready`);
});
process.on("SIGTERM", () => {
  console.log(`gave ${JSON.stringify(gave)}`);
  process.exit(0);
});
