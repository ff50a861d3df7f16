/** The scenarios, with the aim of each row and the check of every reply. One row here is one line of the report. */

import { authScenarios } from "./auth-scenarios.ts";
import { tokenHeaders } from "./credentials.ts";
import { MEMORY_SCENARIOS } from "./memory-scenarios.ts";
import { MARKER, type Numbers } from "./numbers.ts";
import { DELTAS, enveloped, eventsOf, WORDS } from "./replies.ts";
import { WORKFLOW_SCENARIOS } from "./workflow-scenarios.ts";

/** `least`: higher is better; `most`: lower is better. Both in the unit of the measure. */
interface Aim {
  measure: "requests/s" | "CPU share of bare" | "% CPU above twin" | "ms" | "MiB" | "s" | "KiB/stream" | "KiB/socket";
  least?: number;
  most?: number;
}

/** Many short requests over keep-alive connections, beside a bare server that replies with the same bytes. */
export interface HttpScenario {
  kind: "http";
  name: string;
  title: string;
  service: Service;
  method: "GET" | "POST";
  path: string;
  /** The body as JSON text. */
  body: string | null;
  /** Headers of each request. */
  headers?(): Readonly<Record<string, string>>;
  /** The numbers that replace the marker in the path or the body, one per request (`bench/numbers.ts`). */
  numbers?: Numbers;
  /** Set when each request has its own `Idempotency-Key`. */
  keyed?: true;
  /** A second request after each first one, about what that one created; both are counted. */
  next?: Next;
  /** Fills the store before the first request, with fewer conversations than usual if `count` is given. */
  prepare?(port: number, count?: number): Promise<void>;
  /** A row with the same replies with which this one is compared: it runs beside it, in the same rounds. */
  twin?: HttpScenario;
  aim: Aim;
  /** The problem of a reply's body, or null. */
  check(body: string): string | null;
}

/**
 * The configuration of the server: `plain` is service.yaml, `memory` is memory.yaml with a fresh SQLite file and `memory-memory` the
 * same in memory, `kept` is kept.yaml with one, `workflow` is workflow.yaml with one, and `workflow-memory` the same in memory; `traces`
 * is traces.yaml. Only the last of these traces; `traced` is service.yaml with every run traced, and `traced-content` with redacted
 * inputs and outputs too. `auth` is auth.yaml, `package` package.yaml. `upstream` and `everything` are those in the folder `upstream`,
 * with a provider behind HTTP, and `init` is init.yaml with one.
 */
export type Service =
  | "plain"
  | "memory"
  | "memory-memory"
  | "kept"
  | "workflow"
  | "workflow-memory"
  | "traces"
  | "traced"
  | "traced-content"
  | "auth"
  | "upstream"
  | "processes"
  | "everything"
  | "package"
  | "init";

interface Next {
  /** Finds an id in the reply to the first request: valid both as a pattern of Lua and as a regular expression. */
  id: string;
  /** The path, with `ID` in place of the id. */
  path: string;
  /** The body as JSON text. */
  body: string;
}

/** A measure with its own runner (`bench/special.ts`). */
export interface SpecialScenario {
  kind: "special";
  name: "paced" | "open" | "startup" | "memory" | "paced-scripted" | "open-scripted" | "sockets" | "spans" | "watched";
  title: string;
  aims: Aim[];
}

/** The table of the real path (`bench/upstream`). */
interface UpstreamScenario {
  kind: "upstream";
  name: "upstream";
  title: string;
}

type Scenario = HttpScenario | SpecialScenario | UpstreamScenario;

const input = (text: string) => JSON.stringify({ input: text });
const count = (text: string, part: string) => text.split(part).length - 1;

function streamed(last: string): (body: string) => string | null {
  return (body) => {
    const events = eventsOf(body);
    const deltas = events.filter((event) => event.type === "text-delta");
    const text = deltas.map((event) => event.delta).join("");
    if (deltas.length !== DELTAS) return `${deltas.length} deltas instead of ${DELTAS}`;
    if (text !== WORDS) return `the deltas make ${JSON.stringify(text)}`;
    return events.at(-1)?.type === last ? null : `the last event is ${JSON.stringify(events.at(-1))}`;
  };
}

function textScenario(service: Service, name: string, title: string, least: number): HttpScenario {
  return {
    kind: "http",
    service,
    name,
    title,
    method: "POST",
    path: "/agents/assistant/text",
    body: input(WORDS),
    aim: { measure: "requests/s", least },
    check: enveloped((data) => (data.text === WORDS && data.finishReason === "stop" ? null : "another text")),
  };
}

const AGENTS: HttpScenario = {
  kind: "http",
  service: "plain",
  name: "agents",
  title: "GET /agents",
  method: "GET",
  path: "/agents",
  body: null,
  aim: { measure: "CPU share of bare", least: 0.95 },
  check: (body) => (count(body, '"id":"') >= 4 && body.startsWith('{"success":true') ? null : "not the list of agents"),
};

const TEXT = textScenario("plain", "text", "POST /agents/:id/text", 60_000);

const TOOL_CALL: HttpScenario = {
  kind: "http",
  service: "plain",
  name: "tool-call",
  title: "a tool call and an answer",
  method: "POST",
  path: "/agents/caller/text",
  body: input("add two and three"),
  aim: { measure: "requests/s", least: 25_000 },
  check: enveloped((data) =>
    data.text === "The sum is 5." && (data.toolResults as unknown[]).length === 1 ? null : "another answer",
  ),
};

const STREAM: HttpScenario = {
  kind: "http",
  service: "plain",
  name: "stream",
  title: "POST /agents/:id/stream, 32 deltas",
  method: "POST",
  path: "/agents/assistant/stream",
  body: input(WORDS),
  aim: { measure: "requests/s", least: 19_000 },
  check: streamed("finish"),
};

/** What a package of the AI SDK costs whose model is in this process, and what most users have. */
const USUAL: readonly HttpScenario[] = [
  textScenario("package", "text-package", "POST /agents/:id/text, a package's model in the process", 11_200),
  {
    ...STREAM,
    service: "package",
    name: "stream-package",
    title: "POST /agents/:id/stream, a package's model in the process",
    aim: { measure: "requests/s", least: 9_650 },
  },
  {
    ...TOOL_CALL,
    service: "package",
    name: "tool-call-package",
    title: "two calls of a package's model, and a tool between them",
    aim: { measure: "requests/s", least: 8_400 },
  },
  {
    ...textScenario("init", "init", "what `penstock init` writes, a provider over HTTP, a token", 4_000),
    // Each connection has a conversation of its own, so that none waits for another.
    body: JSON.stringify({ input: WORDS, options: { memory: { conversationId: `conversation-${MARKER}` } } }),
    numbers: { below: 64, pick: "turn" },
    headers: tokenHeaders,
  },
];

export const SCENARIOS: readonly Scenario[] = [
  { kind: "upstream", name: "upstream", title: "the real path: a provider over HTTP" },
  {
    kind: "special",
    name: "paced",
    title: "1,000 streams of a provider over HTTP, a delta every 20 ms",
    aims: [{ measure: "ms", most: 10 }],
  },
  {
    kind: "special",
    name: "open",
    title: "10,000 open streams of a provider over HTTP, a delta every second",
    aims: [
      { measure: "KiB/stream", most: 60 },
      { measure: "ms", most: 50 },
    ],
  },
  AGENTS,
  TEXT,
  ...authScenarios({ agents: AGENTS, text: TEXT }),
  // Tracing may cost 15 % of the rate without it.
  textScenario("traced", "text-traced", "POST /agents/:id/text, traced", 51_000),
  textScenario("traced-content", "text-traced-content", "POST /agents/:id/text, traced with content", 51_000),
  TOOL_CALL,
  {
    kind: "http",
    service: "plain",
    name: "execute",
    title: "POST /tools/:name/execute",
    method: "POST",
    path: "/tools/add/execute",
    body: JSON.stringify({ input: { a: 2, b: 3 } }),
    aim: { measure: "requests/s", least: 80_000 },
    check: enveloped((data) => ((data.result as { sum?: number }).sum === 5 ? null : "another sum")),
  },
  STREAM,
  {
    kind: "http",
    service: "plain",
    name: "chat",
    title: "POST /agents/:id/chat, 32 deltas",
    method: "POST",
    path: "/agents/assistant/chat",
    body: JSON.stringify({ input: [{ role: "user", parts: [{ type: "text", text: WORDS }] }] }),
    aim: { measure: "requests/s", least: 15_000 },
    check: streamed("[DONE]"),
  },
  ...USUAL,
  ...MEMORY_SCENARIOS,
  ...WORKFLOW_SCENARIOS,
  {
    kind: "special",
    name: "startup",
    title: "process start to first reply",
    aims: [{ measure: "ms", most: 500 }],
  },
  {
    kind: "special",
    name: "memory",
    title: "resident memory: idle, after load",
    aims: [
      { measure: "MiB", most: 130 },
      { measure: "MiB", most: 200 },
    ],
  },
  {
    kind: "special",
    name: "paced-scripted",
    title: "without a model: 1,000 streams of 10 deltas 100 ms apart (ideal 1.0 s)",
    aims: [{ measure: "s", most: 1.05 }],
  },
  {
    kind: "special",
    name: "open-scripted",
    title: "without a model: 5,000 open slow streams",
    aims: [{ measure: "KiB/stream", most: 20 }],
  },
  {
    kind: "special",
    name: "sockets",
    title: "10,000 idle sockets on /ws",
    aims: [{ measure: "KiB/socket", most: 10 }],
  },
  {
    kind: "special",
    name: "spans",
    title: "1,000,000 spans, recorded in memory",
    aims: [{ measure: "MiB", most: 256 }],
  },
  {
    kind: "special",
    name: "watched",
    title: "10,000 sockets on /ws/observability while agents run 2,000 times a second",
    aims: [
      { measure: "ms", most: 50 },
      { measure: "MiB", most: 400 },
    ],
  },
];

export function httpScenarios(scenarios: readonly Scenario[]): HttpScenario[] {
  return scenarios.filter((scenario) => scenario.kind === "http");
}

/** Scenarios that need only `bench/service.yaml`, and leave nothing behind. */
export function plainScenarios(): HttpScenario[] {
  return httpScenarios(SCENARIOS).filter(({ service }) => service === "plain");
}

/** The rows with these names, in the order of the table; all rows when there is no name. Throws for an unknown name. */
export function chosen(names: readonly string[]): readonly Scenario[] {
  const unknown = names.find((name) => !SCENARIOS.some((scenario) => scenario.name === name));
  if (unknown !== undefined) {
    throw new Error(`no scenario "${unknown}"; there are: ${SCENARIOS.map((scenario) => scenario.name).join(", ")}`);
  }
  return names.length === 0 ? SCENARIOS : SCENARIOS.filter((scenario) => names.includes(scenario.name));
}

/** Whether a value meets an aim. */
export function reaches(aim: Aim, value: number): boolean {
  return value >= (aim.least ?? Number.NEGATIVE_INFINITY) && value <= (aim.most ?? Number.POSITIVE_INFINITY);
}

export function aimText(aim: Aim): string {
  const bound = aim.least === undefined ? `<= ${aim.most}` : `>= ${aim.least.toLocaleString("en-US")}`;
  return `${bound} ${aim.measure}`;
}
