/** Services with memories, and calls of their API. */
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { validators } from "../../generated/all-validators.js";
import type { Schemas } from "../../generated/types.ts";
import type { Loose } from "./served-upstream.ts";
import { manifestWith, startService, type TestService } from "./service.ts";

/** A `default` memory for two agents, one of their own for a third; the fourth has none. */
export const MEMORIES = {
  memory: {
    default: { workingMemory: { template: "# Profile" } },
    private: {},
  },
  agents: {
    desk: { model: "demo/echo" },
    shop: { model: "demo/echo", memory: "default" },
    clerk: { model: "demo/echo", memory: "private" },
    echo: { model: "demo/echo", memory: false },
  },
};

export interface Answer {
  status: number;
  /** `data` of the envelope. */
  data: Loose;
  error: string;
  code: string | null;
}

export interface MemoryService extends TestService {
  call(method: string, path: string, body?: unknown): Promise<Answer>;
  /** `data` of a call below `/api/memory` that must succeed. */
  data(method: string, path: string, body?: unknown): Promise<Loose>;
}

/** Calls of a running service: its address is all that is needed. */
export function callsOf(url: string): Pick<MemoryService, "call" | "data"> {
  const call = async (method: string, path: string, body?: unknown): Promise<Answer> => {
    const init = body === undefined ? {} : { headers: { "content-type": "application/json" }, body: textOf(body) };
    const reply = await fetch(`${url}/api/memory${path}`, { method, ...init });
    const { success, data, error, ...rest } = (await reply.json()) as Loose;
    assert.deepEqual(rest, {});
    assert.equal(success, reply.ok);
    return { status: reply.status, data, error, code: reply.headers.get("x-error-code") };
  };
  const data = async (method: string, path: string, body?: unknown) => {
    const answer = await call(method, path, body);
    assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.error}`);
    return answer.data;
  };
  return { call, data };
}

const textOf = (body: unknown) => (typeof body === "string" ? body : JSON.stringify(body));

export async function serveMemory(t: TestContext, store: string, rest: object = {}): Promise<MemoryService> {
  const service = await startService(t, manifestWith({}, { ...MEMORIES, store, ...rest }));
  return { ...service, ...callsOf(service.url) };
}

/** A folder that goes with the test. */
export async function temporaryFolder(t: Pick<TestContext, "after">): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "penstock-memory-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

export function assertShape(id: keyof Schemas, value: unknown): void {
  const validate = validators[id] as Loose;
  assert.ok(validate(value), `${id}: ${JSON.stringify(validate.errors)}`);
}

/** `parts` and `content` as the two kinds of clients write them. */
export const said = (text: string, more: object = {}) => ({
  role: "user",
  parts: [{ type: "text", text }],
  ...more,
});

export const ISO = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/;
