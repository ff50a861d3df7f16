/** Contract, "options of the generation endpoints": which earlier messages a run is told by their meaning, over HTTP. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { says } from "../support/openai-upstream.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { SECRET, token } from "../support/tokens.ts";

const TEXT = "/agents/assistant/text";
const LIVES = "The ferry to Lisbon leaves at noon";
const ASKS = "When does the ferry to Lisbon leave?";

interface Asking {
  readonly user?: string;
  readonly conversation: string;
  readonly headers?: Record<string, string>;
  readonly options?: object;
}

async function served(t: TestContext, semantic: object = {}, rest: Record<string, unknown> = {}, agent: object = {}) {
  const memory = { default: { semantic: { embedding: "local/hash", ...semantic } } };
  const { service, upstream } = await serveUpstream(t, { memory: "default", ...agent }, { memory, ...rest });
  /** Says it, and gives what the model was told of earlier. */
  const told = async (input: string, { user, conversation, headers = {}, options = {} }: Asking): Promise<string[]> => {
    upstream.replies(says("Well"));
    const memory = { conversationId: conversation, ...(user !== undefined && { userId: user }), options };
    await dataOf(service.post(TEXT, { input, options: { memory } }, headers));
    const { messages } = upstream.requests.at(-1)!.body;
    const text = ({ content }: Loose) => (typeof content === "string" ? content : content[0].text);
    return messages
      .filter(({ role }: Loose) => role === "user")
      .slice(0, -1)
      .map(text);
  };
  return { service, told };
}

test("POST /agents/:id/text tells what its user said in another conversation, and nothing that somebody else said", async (t) => {
  const { told } = await served(t);
  assert.deepEqual(await told(LIVES, { user: "ada", conversation: "a1" }), []);
  await told("It rains", { user: "bob", conversation: "b1" });
  assert.deepEqual(await told(ASKS, { user: "bob", conversation: "b2" }), []);
  assert.deepEqual(await told("It is late", { user: "ada", conversation: "a2" }), []);
  assert.deepEqual(await told(ASKS, { user: "ada", conversation: "a3" }), [LIVES]);
  assert.deepEqual(await told(ASKS, { user: "ada", conversation: "a2" }), ["It is late", LIVES, ASKS]);
});

test("memory.NAME.semantic.scope: conversation keeps what is told to the run's own conversation", async (t) => {
  const { told } = await served(t, { scope: "conversation" });
  await told(LIVES, { user: "ada", conversation: "a1" });
  await told("It rains", { user: "ada", conversation: "a2" });
  assert.deepEqual(await told(ASKS, { user: "ada", conversation: "a2" }), ["It rains"]);
  const options = { contextLimit: 0 };
  assert.deepEqual(await told(ASKS, { user: "ada", conversation: "a1", options }), [LIVES]);
});

test("POST /agents/:id/text without a user tells of its own conversation alone, whatever that user is called", async (t) => {
  const { told } = await served(t);
  await told(LIVES, { conversation: "n1" });
  assert.deepEqual(await told(ASKS, { conversation: "n2" }), []);
  assert.deepEqual(await told(ASKS, { conversation: "n3", user: "anonymous" }), []);
  assert.deepEqual(await told(ASKS, { conversation: "n1", options: { contextLimit: 0 } }), [LIVES]);
});

test("POST /agents/:id/text of the user of a token tells what that user said, and on a public route nothing of anybody", async (t) => {
  const auth = (publicRoutes: string[]) => ({
    auth: { mode: "authNext", provider: { use: "jwt", secret: SECRET }, publicRoutes },
  });
  const as = (sub: string) => ({ headers: { authorization: `Bearer ${token({ sub })}` } });
  const { told } = await served(t, {}, auth([]));
  await told(LIVES, { ...as("ada"), conversation: "a1" });
  await told("It rains", { ...as("bob"), conversation: "b1" });
  assert.deepEqual(await told(ASKS, { ...as("bob"), conversation: "b2" }), []);
  assert.deepEqual(await told(ASKS, { ...as("ada"), conversation: "a2" }), [LIVES]);

  const open = await served(t, {}, auth(["/**"]));
  await open.told(LIVES, { conversation: "n1" });
  await open.told("It rains", { conversation: "n2" });
  assert.deepEqual(await open.told(ASKS, { conversation: "n3" }), []);
});

test("POST /agents/:id/text tells similar messages in the order in which they were said, semanticLimit of them beside the window", async (t) => {
  const { told } = await served(t, { limit: 2 });
  const lines = ["The ferry to Lisbon is red", "The ferry to Lisbon is late", "The ferry to Lisbon is full"];
  for (const line of lines) await told(line, { user: "ada", conversation: "a1" });
  const options = { contextLimit: 2, semanticMemory: { mergeStrategy: "prepend" } };
  // The window ends with the third line, which takes no place of what is told beside it.
  assert.deepEqual(await told("The ferry to Lisbon is what?", { user: "ada", conversation: "a1", options }), lines);
});

test("semanticThreshold defaults to what suits the embedding; the request's beats the agent's, the agent's the memory's", async (t) => {
  const said = "My new flat is on the fourth floor and has no elevator.";
  const asked = "Is there a lift?";
  const at = (semanticThreshold: number) => ({ semanticMemory: { semanticThreshold } });
  const agent = (threshold: number) => ({ options: { memory: { options: at(threshold) } } });
  const told = async (semantic: object, options: object = {}, agent: object = {}) => {
    const service = await served(t, { embedding: "local/use", ...semantic }, {}, agent);
    await service.told(said, { user: "ada", conversation: "a1" });
    return service.told(asked, { user: "ada", conversation: "a2", options });
  };
  assert.deepEqual(await told({}), [said]);
  assert.deepEqual(await told({ threshold: 0.7 }), []);
  assert.deepEqual(await told({ threshold: 0.7 }, {}, agent(0.2)), [said]);
  assert.deepEqual(await told({ threshold: 0.2 }, {}, agent(0.9)), []);
  assert.deepEqual(await told({}, at(0.9), agent(0.2)), []);
});
