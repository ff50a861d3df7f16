/** Real MCP clients speak to `/mcp/:serverId/mcp`: both generations of the SDK, the current revision of the protocol and the one before. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { eventually } from "../support/event-reader.ts";
import { FIXTURES } from "../support/fixtures.ts";
import { CLIENTS, connect, type TestClient } from "../support/mcp-clients.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { soon } from "../support/providers.ts";
import { dataOf } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { SECRET, token } from "../support/tokens.ts";

/** Waits for the end of its call, and tells whoever asks which calls have begun and ended. */
const HANG = `
const begun = [], ended = [];
export default { kind: "tool", name: "hang", execute(input, { signal }) {
  if (input.ask) return { begun, ended };
  begun.push(input.id);
  return new Promise((_, reject) => signal.addEventListener("abort", () => { ended.push(input.id); reject(signal.reason); }));
} };`;
const MANIFEST = manifestWith(
  { tools: ["sum"], memory: "default" },
  {
    auth: { mode: "authNext", provider: { use: "jwt", secret: SECRET }, publicRoutes: [] },
    memory: { default: {} },
    tools: {
      sum: { use: "add" },
      fail: { use: "fail" },
      guarded: { use: "add", approval: true },
      hang: { use: "hang" },
    },
    workflows: {
      expense: {
        purpose: "Approve an expense",
        input: { type: "object", properties: { amount: { type: "number" } }, required: ["amount"] },
        resume: { type: "object", properties: { approved: { type: "boolean" } }, required: ["approved"] },
        steps: [
          { id: "ask", andThen: { suspend: { reason: "Manager approval needed" } } },
          { id: "end", andThen: { set: { approved: "{{ data.approved }}" } } },
        ],
      },
    },
    mcp: {
      servers: {
        main: {
          name: "Desk",
          version: "3.2.1",
          tools: ["sum", "fail", "guarded", "hang"],
          agents: ["assistant"],
          workflows: ["expense"],
        },
      },
    },
  },
);
const bearer = (sub: string) => ({ authorization: `Bearer ${token({ sub })}` });

let service: TestService;
const over: (() => unknown)[] = [];
before(async () => {
  const plugins = [
    FIXTURES,
    pluginFolder({ after: (work) => void over.push(work as () => unknown) }, { "tools/hang.mjs": HANG }),
  ];
  service = await startService({ after: (work) => void over.push(work as () => unknown) }, MANIFEST, { plugins });
});
after(async () => {
  for (const work of over) await work();
});

const address = () => `${service.url}/mcp/main/mcp`;

for (const name of CLIENTS) {
  describe(`the client ${name}`, () => {
    let ada: TestClient;
    before(async () => {
      ada = await connect(name, address(), bearer("ada"));
    });
    after(() => ada.close());

    test(`the MCP client ${name} speaks the revision that it is for`, () => {
      const expected = name === "2.4.0 current" ? "2026-07-28" : "2025-11-25";
      assert.equal(ada.protocol, expected);
    });

    test(`the MCP client ${name} lists tools, agents and workflows with their schemas`, async () => {
      const tools = await ada.tools();
      assert.deepEqual(
        tools.map(({ name }) => name),
        ["sum", "fail", "guarded", "hang", "agent_assistant", "workflow_expense", "workflow_expense_resume"],
      );
      assert.deepEqual(tools[0].inputSchema.required, ["a", "b"]);
      assert.deepEqual(tools[4].inputSchema.required, ["prompt"]);
      assert.deepEqual(tools[5].inputSchema.properties.input.required, ["amount"]);
      assert.deepEqual(tools[6].inputSchema.properties.resumeData.required, ["approved"]);
    });

    test(`the MCP client ${name} calls a tool, and gets its result as text and as it is`, async () => {
      const { content, structuredContent, isError } = await ada.call("sum", { a: 1, b: 2 });
      assert.deepEqual(content, [{ type: "text", text: '{"sum":3}' }]);
      assert.deepEqual(structuredContent, { sum: 3 });
      assert.notEqual(isError, true);
    });

    for (const [what, tool, given, text] of [
      ["arguments that do not fit", "sum", { a: 1 }, "input.b is required"],
      ["a tool that fails", "fail", {}, "the shop is closed"],
      ["a prompt that is none", "agent_assistant", { prompt: 7 }, "arguments.prompt must be string"],
      ["an input that the workflow refuses", "workflow_expense", { input: {} }, "input.amount is required"],
      ["an execution that does not exist", "workflow_expense_resume", { executionId: "nope" }, /nope.* does not exist/],
      ["a tool that needs approval", "guarded", { a: 1, b: 2 }, /approval/],
    ] as const) {
      test(`the MCP client ${name} is told of ${what} by a result that the model can read`, async () => {
        const { content, isError } = await ada.call(tool, given);
        assert.equal(isError, true);
        if (typeof text === "string") assert.equal(content[0].text, text);
        else assert.match(content[0].text, text);
      });
    }

    test(`the MCP client ${name} is told of an unknown tool by an error of the protocol`, async () => {
      await assert.rejects(ada.call("nope", {}), /unknown tool "nope"/);
    });

    test(`the MCP client ${name} asks an agent, in a conversation of the caller's own, whoever has one of the same id`, async () => {
      const conversationId = `talk-${name.replaceAll(" ", "-")}`;
      const { content, structuredContent } = await ada.call("agent_assistant", { prompt: "Tea?", conversationId });
      assert.equal(content[0].text, "Tea?");
      assert.equal(structuredContent.finishReason, "stop");
      const path = `/api/memory/conversations/${conversationId}`;
      assert.equal((await dataOf(service.get(path, bearer("ada")))).conversation.userId, "ada");
      const bob = await connect(name, address(), bearer("bob"));
      assert.equal((await bob.call("agent_assistant", { prompt: "Coffee?", conversationId })).isError ?? false, false);
      const messages = async (user: string) =>
        JSON.stringify((await dataOf(service.get(`${path}/messages`, bearer(user)))).messages);
      assert.doesNotMatch(await messages("ada"), /Coffee/);
      assert.doesNotMatch(await messages("bob"), /Tea/);
      await bob.close();
    });

    test(`the MCP client ${name} runs a workflow to where it waits, and resumes it; nobody else does`, async () => {
      const waiting = await ada.call("workflow_expense", { input: { amount: 5 } });
      const { executionId, status, suspension } = waiting.structuredContent;
      assert.deepEqual([status, suspension.reason], ["suspended", "Manager approval needed"]);
      assert.match(waiting.content[1].text, new RegExp(`call workflow_expense_resume with .*${executionId}`));
      const bob = await connect(name, address(), bearer("bob"));
      const foreign = await bob.call("workflow_expense_resume", { executionId, resumeData: { approved: true } });
      assert.match(foreign.content[0].text, /does not exist/);
      await bob.close();
      const unfit = await ada.call("workflow_expense_resume", { executionId, resumeData: {} });
      assert.deepEqual([unfit.isError, unfit.content[0].text], [true, "resumeData.approved is required"]);
      const done = await ada.call("workflow_expense_resume", { executionId, resumeData: { approved: true } });
      assert.deepEqual(done.structuredContent.result, { approved: true });
    });

    test(`the MCP client ${name} stops a call when it leaves`, async () => {
      const leaving = await connect(name, address(), bearer("ada"));
      const id = `${name} leaves`;
      const call = leaving.call("hang", { id }).catch(() => "gone");
      await until("begun", id);
      await leaving.close();
      assert.equal(await soon(call, "the end of the call"), "gone");
      await until("ended", id);
    });

    test(`the MCP client ${name} cancels a call`, async () => {
      const id = `${name} cancels`;
      const cancel = new AbortController();
      const call = ada.call("hang", { id }, cancel.signal).catch(() => "cancelled");
      await until("begun", id);
      cancel.abort();
      assert.equal(await soon(call, "the end of the call"), "cancelled");
      await until("ended", id);
    });

    const until = (what: "begun" | "ended", id: string) =>
      eventually(
        async () => (await ada.call("hang", { ask: true })).structuredContent[what].includes(id),
        `the call has ${what}`,
      );

    test(`the MCP client ${name} is refused without a token`, async () => {
      await assert.rejects(connect(name, address()), /401|[Uu]nauthorized|authentication required/);
    });

    test(`the MCP client ${name} is refused by a server that does not exist`, async () => {
      await assert.rejects(
        connect(name, `${service.url}/mcp/other/mcp`, bearer("ada")),
        /404|does not exist|did not offer pinned/,
      );
    });
  });
}
