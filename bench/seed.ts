/** Fills the store of a running server over HTTP. */
import { Agent, request } from "node:http";
import { numeral } from "./numbers.ts";
import { WORDS } from "./replies.ts";

/** Number of connections; the server commits together what they send together. */
const LANES = 64;
/** Messages in one save. */
const BATCH = 100;

function post(port: number, agent: Agent, path: string, body: unknown): Promise<void> {
  const text = JSON.stringify(body);
  const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(text) };
  return new Promise((resolve, reject) => {
    const sent = request({ host: "127.0.0.1", port, agent, method: "POST", path, headers }, (response) => {
      let reply = "";
      response.setEncoding("utf8").on("data", (part: string) => {
        reply += part;
      });
      response.once("error", reject);
      response.once("end", () => {
        const { statusCode = 0 } = response;
        if (statusCode < 300) resolve();
        else reject(new Error(`POST ${path} is ${statusCode}: ${reply}`));
      });
    });
    sent.once("error", reject);
    sent.end(text);
  });
}

/** Calls `work` for 0, 1, ... `count - 1`, several at a time; few one after the other, so that the store is the same every time. */
async function each(count: number, work: (number: number) => Promise<void>): Promise<void> {
  let next = 0;
  const lane = async () => {
    while (next < count) {
      next += 1;
      await work(next - 1);
    }
  };
  await Promise.all(Array.from({ length: count < LANES ? 1 : LANES }, lane));
}

/** Creates `conversation-N` of `user-N`, empty, for every N below `count`. */
export async function createConversations(port: number, count: number): Promise<void> {
  const agent = new Agent({ keepAlive: true });
  await each(count, (number) => {
    const [userId, conversationId] = [`user-${numeral(number)}`, `conversation-${numeral(number)}`];
    return post(port, agent, "/api/memory/conversations", { userId, conversationId, resourceId: "assistant" });
  });
  agent.destroy();
}

/** Creates the same conversations with `messages` messages in each. */
export async function fillConversations(port: number, count: number, messages: number): Promise<void> {
  await createConversations(port, count);
  const agent = new Agent({ keepAlive: true });
  await each(count, async (number) => {
    for (let saved = 0; saved < messages; saved += BATCH) {
      await post(port, agent, "/api/memory/save-messages", {
        userId: `user-${numeral(number)}`,
        conversationId: `conversation-${numeral(number)}`,
        messages: Array.from({ length: Math.min(BATCH, messages - saved) }, () => ({ role: "user", content: WORDS })),
      });
    }
  });
  agent.destroy();
}
