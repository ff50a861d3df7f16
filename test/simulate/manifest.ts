/** The service of a simulation: agents, workflows and tools whose effects can be counted. */

/** Where each process finds its manifest. */
export const CONFIG = "/simulated/service.yaml";

const call = (tool: string) => ({ tool, input: { what: "{{ match[1] }}" } });
const act = (name: string, more: object = {}) => ({ use: "act", with: { name, ...more } });

/** @param version changes nothing but a text, so that a reload has something to do */
export const manifestText = (version = 0): string =>
  JSON.stringify({
    name: "Simulated",
    version: "1.0.0",
    store: "postgres://simulated/db",
    logs: { level: "warn" },
    auth: { mode: "authNext", provider: { use: "names" } },
    server: { limits: { drain: "5s", request: "60s" } },
    providers: {
      demo: {
        use: "scripted",
        chunks: 4,
        delay: "100ms",
        replies: [
          { when: "both (\\S+)", call: [call("act"), call("pay")], then: "both are done" },
          { when: "act (\\S+)", call: call("act"), then: "it is done" },
          { when: "pay (\\S+)", call: call("pay"), then: "it is paid" },
        ],
      },
    },
    memory: { default: { contextLimit: 10 } },
    tools: { act: { use: "act" }, pay: { use: "pay" } },
    agents: {
      worker: {
        name: "Worker",
        description: "Works",
        instructions: `Work. ${version}`,
        model: "demo/echo",
        durable: true,
        memory: false,
        tools: ["act", "pay"],
      },
      friend: {
        name: "Friend",
        description: "Remembers",
        instructions: `Talk. ${version}`,
        model: "demo/echo",
        memory: "default",
        tools: ["act", "pay"],
      },
    },
    workflows: {
      chain: {
        purpose:
          "Steps after each other, one that fails at first and is tried again after a sleep, and a question in between",
        retry: { attempts: 2, delay: "2s" },
        steps: [
          { id: "one", andThen: act("one", { milliseconds: 1_000 }) },
          { id: "two", andThen: act("two", { fails: 1 }) },
          { id: "ask", andThen: { suspend: { reason: "go on?" } } },
          { id: "three", andThen: act("three", { milliseconds: 2_000 }) },
        ],
      },
      long: {
        purpose: "A step that nobody waits for",
        steps: [{ id: "long", andThen: act("long", { milliseconds: 200_000 }) }],
      },
      paying: {
        purpose: "A tool that a person must approve",
        input: { type: "object", properties: { what: { type: "string" } }, required: ["what"] },
        steps: [
          { id: "before", andThen: act("before") },
          { id: "pay", andThen: { tool: "pay", input: { what: "{{ input.what }}", milliseconds: 1_500 } } },
          { id: "after", andThen: act("after") },
        ],
      },
      asking: {
        purpose: "Two branches, then an agent with a tool that works and one that a person must approve",
        input: { type: "object", properties: { what: { type: "string" } }, required: ["what"] },
        steps: [
          {
            id: "both",
            andAll: [
              { id: "left", andThen: act("left", { milliseconds: 700 }) },
              { id: "right", andThen: act("right", { milliseconds: 100 }) },
            ],
          },
          { id: "agent", andAgent: { agent: "worker", prompt: "both {{ input.what }}" } },
          { id: "last", andThen: act("last") },
        ],
      },
    },
  });
