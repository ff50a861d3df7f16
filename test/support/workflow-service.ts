/** A real service with workflows, and what clients do with them. */
import assert from "node:assert/strict";
import { after } from "node:test";
import { validators } from "../../generated/all-validators.js";
import type { ExecutionResult, ExecutionState } from "../../generated/types.ts";
import { FIXTURES } from "./fixtures.ts";
import type { Loose } from "./served-upstream.ts";
import { manifestWith, parseEvents, startService, type TestOptions, type TestService } from "./service.ts";

interface Refused {
  status: number;
  error: string;
  headers: Headers;
}

export interface NumberedEvent {
  id: number;
  type: string;
  /** Of a step event. */
  from: string;
  event: Loose;
}

/** What a client of one workflow of a service does. */
export interface Client {
  readonly service: TestService;
  execute(workflow: string, input?: unknown, options?: object): Promise<ExecutionResult>;
  /** Begins an execution without waiting for it; its reply is `reply`. */
  begin(workflow: string, id: string, input?: unknown, options?: object): { reply: Promise<Response>; id: string };
  /** POSTs to `suspend`, `resume`, `cancel` or `replay` of an execution. */
  command(workflow: string, id: string, command: string, body?: object): Promise<Response>;
  resume(workflow: string, id: string, resumeData?: unknown, options?: object): Promise<ExecutionResult>;
  state(workflow: string, id: string): Promise<ExecutionState>;
  record(id: string): Promise<Loose>;
  events(workflow: string, id: string, after?: number): Promise<NumberedEvent[]>;
}

/** `data` of a reply that is a success. */
export async function dataOf(reply: Response | Promise<Response>): Promise<Loose> {
  const response = await reply;
  const body = (await response.json()) as Loose;
  assert.deepEqual([response.status, body.success], [200, true], JSON.stringify(body));
  return body.data;
}

/** Requests that a service has not answered yet. */
export async function inFlight({ service }: Client): Promise<number> {
  const metrics = await (await service.get("/metrics")).text();
  return Number(/^penstock_http_requests_in_flight (\d+)/m.exec(metrics)?.[1]);
}

/** What a reply says that is none. */
export async function refused(reply: Response | Promise<Response>): Promise<Refused> {
  const response = await reply;
  const body = (await response.json()) as Loose;
  assert.deepEqual(Object.keys(body).sort(), ["error", "success"], JSON.stringify(body));
  assert.equal(body.success, false);
  return { status: response.status, error: body.error, headers: response.headers };
}

export async function resultOf(reply: Response | Promise<Response>): Promise<ExecutionResult> {
  const data = await dataOf(reply);
  assert.ok(validators.ExecutionResult(data), JSON.stringify([data, validators.ExecutionResult.errors]));
  return data;
}

/** Events of a whole stream, each checked against its schema. */
export async function eventsOf(reply: Response | Promise<Response>): Promise<NumberedEvent[]> {
  const response = await reply;
  assert.equal(response.status, 200);
  return numbered(await response.text());
}

export const numbered = (text: string): NumberedEvent[] =>
  parseEvents(text).map(({ id, data }) => {
    const event = JSON.parse(data) as Loose;
    const check = validators.WorkflowStreamEvent;
    assert.ok(check(event), `${data} ${JSON.stringify(check.errors)}`);
    return { id: Number(id), type: event.type, from: (event as Loose).from ?? "", event };
  });

/** Events as a list of `type` or `type from`. */
export const told = (events: readonly NumberedEvent[]): string[] =>
  events.map(({ type, from }) => (type.startsWith("workflow") ? type : `${type} ${from}`));

function clientOf(service: TestService): Client {
  const post = (path: string, body: object) => service.post(path, body);
  const at = (workflow: string, id: string, rest: string) => `/workflows/${workflow}/executions/${id}/${rest}`;
  return {
    service,
    execute: (workflow, input = null, options = {}) =>
      resultOf(post(`/workflows/${workflow}/execute`, { input, options })),
    begin(workflow, id, input = null, options = {}) {
      const reply = post(`/workflows/${workflow}/execute`, { input, options: { executionId: id, ...options } });
      reply.catch(() => {});
      return { reply, id };
    },
    command: (workflow, id, command, body = {}) => post(at(workflow, id, command), body),
    resume: (workflow, id, resumeData, options) => resultOf(post(at(workflow, id, "resume"), { resumeData, options })),
    async state(workflow, id) {
      const data = await dataOf(service.get(at(workflow, id, "state")));
      assert.ok(validators.ExecutionState(data), JSON.stringify([data, validators.ExecutionState.errors]));
      return data;
    },
    async record(id) {
      const all = await dataOf(service.get("/workflows/executions?limit=500"));
      assert.ok(validators.WorkflowExecutionList(all), JSON.stringify(validators.WorkflowExecutionList.errors));
      return all.find((record: Loose) => record.id === id);
    },
    events: (workflow, id, after = 0) => eventsOf(service.get(`${at(workflow, id, "stream")}?fromSequence=${after}`)),
  };
}

/** Starts a service for one test, or for a whole file when there is no test. The plugins of test/fixtures are there. */
export async function startWorkflows(
  test: { after(callback: () => Promise<void>): void } | null,
  workflows: object,
  rest: object = {},
  { plugins = [], ...options }: TestOptions = {},
): Promise<Client> {
  const manifest = manifestWith({}, { logs: { level: "debug" }, workflows, ...rest });
  const service = await startService((test ?? { after }) as Parameters<typeof startService>[0], manifest, {
    plugins: [FIXTURES, ...plugins],
    ...options,
  });
  return clientOf(service);
}
