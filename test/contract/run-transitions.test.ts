/** Every command in every status of a kept run, and of the question that it waits for: in its process, and in the next one. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { AUTH, as, ran, serveApprovals } from "../support/approvals.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";

const HOLD = {
  "tools/hold.mjs": `export default { kind: "tool", name: "hold", description: "Waits until it is stopped",
    execute: (_, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("stopped")))) };`,
};
const pay = (tool: string) => ({ tool, input: { amount: "{{ int(match[1]) }}" } });
const MANIFEST = {
  auth: { ...AUTH, consoleRoutes: [] },
  tools: {
    pay: { use: "pay", approval: true },
    brief: { use: "pay", approval: true, expires: "1ms" },
    hold: { use: "hold" },
  },
  providers: {
    demo: {
      use: "scripted",
      replies: [
        { when: "pay (\\d+)", call: pay("pay") },
        { when: "brief (\\d+)", call: pay("brief") },
        { when: "hold", call: { tool: "hold", input: {} } },
        { when: "fail", error: "bad request" },
      ],
    },
  },
  agents: { clerk: { model: "demo/echo", tools: ["pay", "brief", "hold"], memory: false } },
};
const ada = as("ada");
const bob = as("bob");

type Status = "running" | "waiting" | "completed" | "error" | "cancelled" | "unknown";
const STATUSES: readonly Status[] = ["running", "waiting", "completed", "error", "cancelled", "unknown"];
/** What lets a run come to a status. */
const INPUTS: Readonly<Record<Exclude<Status, "unknown">, string>> = {
  running: "hold",
  waiting: "pay 0",
  completed: "hello",
  error: "fail",
  cancelled: "hold",
};

type Command = (service: TestService, id: string, headers: Record<string, string>) => Promise<Response>;
const at = (id: string, rest = "") => `/agents/clerk/runs/${id}${rest}`;
const begin: Command = (service, id, headers) => {
  const options = { background: true, runId: id };
  return service.post(
    "/agents/clerk/text",
    { input: INPUTS[id.split("-")[0] as "running"] ?? "hello", options },
    headers,
  );
};
const COMMANDS: Readonly<Record<string, Command>> = {
  get: (service, id, headers) => service.get(at(id), headers),
  // Of one that goes on the stream does not end: its begin says enough.
  stream: async (service, id, headers) => {
    const leaving = new AbortController();
    const reply = await fetch(service.url + at(id, "/stream"), { headers, signal: leaving.signal });
    const head = new Response(null, { status: reply.status });
    leaving.abort();
    return head;
  },
  cancel: (service, id, headers) => service.post(at(id, "/cancel"), {}, headers),
  begin,
};
/** Codes in the order of STATUSES. */
const TABLE: Readonly<Record<string, readonly number[]>> = {
  get: [200, 200, 200, 200, 200, 404],
  stream: [200, 200, 200, 200, 200, 404],
  cancel: [200, 200, 400, 400, 400, 404],
  begin: [409, 409, 409, 409, 409, 202],
};
/** The status after it, where that is another. */
const AFTER: Readonly<Record<string, Status>> = {
  "cancel running": "cancelled",
  "cancel waiting": "cancelled",
  "begin unknown": "completed",
};

type Question = "open" | "approved" | "denied" | "expired" | "of a cancelled run";
interface Answer {
  readonly approved: boolean;
  readonly codes: Readonly<Record<Question, number>>;
  readonly headers?: Record<string, string>;
}
const ANSWERS: Readonly<Record<string, Answer>> = {
  yes: {
    approved: true,
    codes: { open: 200, approved: 200, denied: 409, expired: 409, "of a cancelled run": 409 },
  },
  no: {
    approved: false,
    codes: { open: 200, approved: 409, denied: 200, expired: 409, "of a cancelled run": 409 },
  },
  "the yes of another user": {
    approved: true,
    headers: bob,
    codes: { open: 404, approved: 404, denied: 404, expired: 404, "of a cancelled run": 404 },
  },
};
const QUESTIONS: readonly Question[] = ["open", "approved", "denied", "expired", "of a cancelled run"];

for (const isNext of [false, true])
  describe(`runs of /agents/:id/runs ${isNext ? "whose process was killed" : "in their process"}`, () => {
    let service: TestService;
    const over: (() => unknown)[] = [];
    const file = { after: (end: () => Promise<void>) => void over.push(end) };
    const statusOf = async (id: string): Promise<Loose> => (await dataOf(service.get(at(id), ada))).status;
    const comesTo = (id: string, status: string) =>
      until(async () => (await statusOf(id)) === status, `${id} comes to ${status}`);
    const answer = (id: string, approved: boolean, headers: Record<string, string> = ada) =>
      service.post(`/approvals/${id}`, { approved }, headers);
    /** By the id of the run. */
    const questions = new Map<string, string>();

    async function bring(status: Status, id: string): Promise<void> {
      if (status === "unknown") return;
      assert.equal((await begin(service, id, ada)).status, 202);
      await comesTo(id, status === "cancelled" ? "running" : status);
      if (status === "cancelled") await dataOf(COMMANDS.cancel!(service, id, ada));
    }

    async function ask(question: Question, id: string, amount: number): Promise<void> {
      const input = `${question === "expired" ? "brief" : "pay"} ${amount}`;
      const options = { background: true, runId: id };
      assert.equal((await service.post("/agents/clerk/text", { input, options }, ada)).status, 202);
      let found: Loose;
      await until(async () => {
        const all: Loose[] = await Promise.all(
          ["open", "expired"].map((status) => dataOf(service.get(`/approvals?limit=100&status=${status}`, ada))),
        );
        found = all.flat().find(({ runId }) => runId === id);
        return found !== undefined;
      }, "the question");
      questions.set(id, found.approvalId);
      if (question === "expired") return comesTo(id, "completed");
      await comesTo(id, "waiting");
      if (question === "of a cancelled run") await dataOf(COMMANDS.cancel!(service, id, ada));
      if (question !== "approved" && question !== "denied") return;
      await dataOf(answer(found.approvalId, question === "approved"));
      await comesTo(id, "completed");
    }

    const cases = STATUSES.flatMap((status) => Object.keys(TABLE).map((command) => ({ status, command })));
    const answers = QUESTIONS.flatMap((question) => Object.keys(ANSWERS).map((said) => ({ question, said })));
    const runOf = (of: number) => `q${of}`;
    let paid: typeof ran = [];
    before(async () => {
      ran.splice(0);
      const store = `sqlite:${join(await temporaryFolder(file as never), "test.db")}?synchronous=normal`;
      const options = { plugins: [pluginFolder(file as never, HOLD)] };
      const serve = () => serveApprovals(file, { ...MANIFEST, store }, options);
      service = await serve();
      // One after the other: so many that ask all the time would keep the service from its work.
      for (const { status, command } of cases) await bring(status, `${status}-${command}`);
      for (const [index, { question }] of answers.entries()) await ask(question, runOf(index), 100 + index);
      if (isNext) {
        await service.kill();
        service = await serve();
      }
      // Other files of this process empty the list between tests.
      paid = ran.splice(0);
    });
    after(async () => {
      for (const end of over.reverse()) await end();
    });

    for (const { status, command } of cases) {
      const code = TABLE[command]![STATUSES.indexOf(status)]!;
      test(`${command} of a run that is ${status} answers ${code}, and 404 to another user`, async () => {
        const id = `${status}-${command}`;
        if (command !== "begin") assert.equal((await COMMANDS[command]!(service, id, bob)).status, 404);
        const reply = await COMMANDS[command]!(service, id, ada);
        assert.equal(reply.status, code, await reply.text());
        const end = AFTER[`${command} ${status}`] ?? status;
        if (end === "unknown") assert.equal((await service.get(at(id), ada)).status, 404);
        else await comesTo(id, end);
      });
    }

    for (const [index, { question, said }] of answers.entries()) {
      const { approved, codes, headers } = ANSWERS[said]!;
      const code = codes[question];
      test(`POST /approvals/:approvalId: ${said} to a question that is ${question} answers ${code}, also a second time`, async () => {
        const id = runOf(index);
        const runs = question === "approved" || (question === "open" && said === "yes");
        for (const _ of ["once", "twice"]) {
          const reply = await answer(questions.get(id)!, approved, headers);
          assert.equal(reply.status, code, await reply.text());
        }
        const isLeft = question === "open" && code === 404;
        await comesTo(id, question === "of a cancelled run" ? "cancelled" : isLeft ? "waiting" : "completed");
        assert.equal([...paid, ...ran].filter((amount) => amount === 100 + index).length, runs ? 1 : 0);
      });
    }

    test("GET /agents/:id/runs has all of them for their user, and none for another", async () => {
      const [mine, theirs] = await Promise.all(
        [ada, bob].map((headers) => dataOf(service.get("/agents/clerk/runs?limit=500", headers))),
      );
      assert.equal(theirs.length, 0);
      // One was begun as a command.
      assert.equal(mine.length, cases.length - Object.keys(TABLE).length + answers.length + 1);
    });
  });
