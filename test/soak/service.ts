/** The service under load: everything real, with short limits so that faults of the model come to their end. */
import type { TestContext } from "node:test";
import { type Measured, serveMeasured } from "../support/measured.ts";

const MANIFEST = `
name: Soak
version: 1.0.0
server: { port: 0, transport: "\${TRANSPORT}", limits: { request: 15s } }
store: "\${STORE}"
logs: { level: warn, buffer: 500 }
providers:
  up:
    use: openai-compatible
    baseURL: "\${UPSTREAM}"
    retries: 1
    timeouts: { connect: 1s, firstByte: 1s, idle: 1s, total: 8s }
memory:
  default:
    workingMemory: { scope: conversation, format: markdown }
    semantic: { embedding: local/hash, vectors: exact, threshold: 0 }
tools:
  lookup_order: { use: lookup-order }
agents:
  alone: { name: Alone, description: Answers, instructions: Answer., model: up/one, tools: [lookup_order], memory: false }
  chained: { name: Chained, description: Answers, instructions: Answer., model: [up/one, up/two], tools: [lookup_order], memory: default }
workflows:
  sum:
    steps:
      - { id: one, andThen: { set: { n: "{{ input.n + 1 }}" } } }
      - { id: both, andAll: [{ id: a, andThen: { set: { a: "{{ data.n }}" } } }, { id: b, andThen: { use: slow, with: { milliseconds: 5 } } }] }
      - { id: last, andThen: { set: { n: "{{ steps.one.n + 1 }}" } } }
  approval:
    steps:
      - { id: one, andThen: { set: { n: "{{ input.n + 1 }}" } } }
      - { id: ask, andThen: { suspend: { reason: May it go on?, data: { n: "{{ data.n }}" } } } }
      - { id: last, andThen: { set: { n: "{{ steps.one.n }}", answer: "{{ data.answer }}" } } }
  talk:
    steps:
      - { id: say, andAgent: { agent: chained, prompt: "ask {{ input.n }}" } }
  slow:
    steps:
      - { id: wait, andThen: { use: slow, with: { milliseconds: 700 } } }
      - { id: last, andThen: { set: { n: "{{ input.n }}" } } }
`;

export const serveSoaked = (
  test: Pick<TestContext, "after">,
  upstream: string,
  transport: string,
  store: string,
): Promise<Measured> => serveMeasured(test, MANIFEST, { UPSTREAM: upstream, TRANSPORT: transport, STORE: store });
