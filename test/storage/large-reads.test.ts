/** Reads of far more than a process should hold: many clients ask at once for pages of large records. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { after, before, describe, test } from "node:test";
import { type Measured, serveMeasured } from "../support/measured.ts";
import { NO_POSTGRES, type PostgresServer, sharedPostgres } from "../support/postgres.ts";

const manifest = (store: string) => `
name: Large reads
version: 1.0.0
server: { port: 0, limits: { body: 8MiB } }
store: "${store}"
logs: { level: warn }
memory: { default: {} }
workflows:
  keep:
    steps: [{ id: one, andThen: { set: { n: "{{ input.n }}" } } }]
`;

const MIB = 1024 * 1024;
const READERS = 8;
const EXECUTIONS = 100;
const MESSAGES = 60;
/** Far less is taken, also by a busy machine, which collects garbage late. Without bounds it was 749 MiB and more. */
const MOST = 300 * MIB;

async function post(service: Measured, path: string, body: unknown): Promise<void> {
  const { status, body: answer } = await whole(service.url + path, JSON.stringify(body));
  assert.ok(status === 200 || status === 201, `${status}: ${answer}`);
}

const statusOf = (service: Measured): string => readFileSync(`/proc/${service.child.pid}/status`, "utf8");
const kib = (text: string, name: string): number => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(text)?.[1]) * 1024;

/** How far the memory of the process rises above what it was before, at most, while eight clients read the same. */
async function growth<T>(service: Measured, path: string, check: (data: T) => void): Promise<number> {
  await service.measure();
  writeFileSync(`/proc/${service.child.pid}/clear_refs`, "5");
  const before = kib(statusOf(service), "VmRSS");
  const read = async (): Promise<Buffer> => {
    const { status, body } = await whole(service.url + path);
    assert.equal(status, 200, body.toString("utf8", 0, 200));
    return body;
  };
  const [first, ...others] = await Promise.all([read(), ...Array.from({ length: READERS - 1 }, read)]);
  assert.ok(
    others.every((body) => body.equals(first)),
    "all readers get the same",
  );
  const most = kib(statusOf(service), "VmHWM");
  check((JSON.parse(first.toString()) as { data: T }).data);
  return most - before;
}

/**
 * A reply, over a connection of its own: the service may close one that is kept, while this process does nothing but compare. What breaks
 * the protocol is shown.
 */
function whole(url: string, sent?: string): Promise<{ status: number | undefined; body: Buffer }> {
  return new Promise((resolve, reject) => {
    const broken = (error: Error & { rawPacket?: Buffer; bytesParsed?: number }) => {
      const at = error.bytesParsed ?? 0;
      const bytes = error.rawPacket?.subarray(Math.max(0, at - 40), at + 40).toString("latin1");
      reject(new Error(`${error.message}, at ${at}: ${JSON.stringify(bytes)}`, { cause: error }));
    };
    const asked = sent === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" } };
    const asking = request(url, { ...asked, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("error", broken);
      response.on("end", () => resolve({ status: response.statusCode, body: Buffer.concat(chunks) }));
    });
    asking.on("error", broken);
    asking.end(sent);
  });
}

const canMeasure = process.platform === "linux" && process.getuid?.() === 0;

describe("eight large reads at once", {
  skip: canMeasure ? false : "the peak can only be measured by root on Linux",
}, () => {
  let postgres: PostgresServer | null = null;
  before(async () => {
    postgres = await sharedPostgres();
  });
  after(() => postgres?.close());

  for (const store of ["memory:", "sqlite:data/large.db", "postgres"])
    test(`GET /workflows/executions and GET .../messages?roles=tool on ${store}: pages of up to 64 MiB are complete, and take less than 300 MiB together`, async (t) => {
      if (store === "postgres" && postgres === null) return t.skip(NO_POSTGRES);
      const url = store === "postgres" ? await postgres!.createDatabase() : store;
      const service = await serveMeasured(t, manifest(url));
      const text = "x".repeat(200_000);
      // In order: the list is compared with it.
      for (let n = 0; n < EXECUTIONS; n++) await post(service, "/workflows/keep/execute", { input: { n, text } });
      const executions = await growth<{ input: { n: number; text: string } }[]>(
        service,
        "/workflows/executions?limit=60",
        (page) => {
          assert.deepEqual(
            page.map(({ input }) => input.n),
            Array.from({ length: 60 }, (_, index) => EXECUTIONS - 1 - index),
          );
          assert.ok(page.every(({ input }) => input.text === text));
        },
      );
      assert.ok(executions < MOST, `executions: ${Math.round(executions / MIB)} MiB`);

      await post(service, "/api/memory/conversations", { conversationId: "c", userId: "ada", resourceId: "r" });
      const long = "ü".repeat(1_500_000);
      // Long are those that are asked for, and as many of those that are not.
      const contentOf = (n: number) => (n % 2 === 0 ? `${n} ${long}` : `${n}`);
      for (let n = 0; n < MESSAGES; n += 2) {
        const messages = [n, n + 1].map((id) => ({
          conversationId: "c",
          userId: "ada",
          message: { id: `${id}`, role: id % 4 === 0 ? "tool" : "user", content: contentOf(id) },
        }));
        await post(service, "/api/memory/save-messages", { messages });
      }
      const messages = await growth<{ messages: { id: string; content: string }[] }>(
        service,
        "/api/memory/conversations/c/messages?roles=tool",
        (page) => {
          assert.deepEqual(
            page.messages.map(({ id }) => Number(id)),
            Array.from({ length: MESSAGES }, (_, index) => index).filter((id) => id % 4 === 0),
          );
          assert.ok(page.messages.every(({ id, content }) => content === contentOf(Number(id))));
        },
      );
      t.diagnostic(`MiB: executions ${Math.round(executions / MIB)}, messages ${Math.round(messages / MIB)}`);
      assert.ok(messages < MOST, `messages: ${Math.round(messages / MIB)} MiB`);
      assert.equal((await whole(`${service.url}/readyz`)).status, 200);
    });
});
