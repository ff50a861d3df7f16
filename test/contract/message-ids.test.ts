/** The ids of stored messages in the replies of agents: by these a client edits, answers again and deletes. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { STORES } from "../support/memory-stores.ts";
import { calls, says } from "../support/openai-upstream.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { parseEvents } from "../support/service.ts";

const AGENT = "/agents/assistant";
const INPUT = { a: 1, b: 2 };

const partsOf = async (reply: Response): Promise<Loose[]> =>
  parseEvents(await reply.text()).flatMap(({ data }) => (data.startsWith("{") ? [JSON.parse(data)] : []));

for (const store of STORES) {
  test(`POST /agents/:id/text and /stream name the ids of the messages that they store, kept or not, by which the next request edits (${store.name})`, async (t) => {
    const { service, upstream } = await serveUpstream(
      t,
      { memory: "default", tools: ["add"] },
      { store: await store.url(t), memory: { default: {} }, tools: { add: { use: "add" } } },
    );
    const stored = async (id: string): Promise<Loose[]> =>
      (await dataOf(service.get(`/api/memory/conversations/${id}/messages`))).messages;
    const memory = (conversationId: string) => ({ memory: { userId: "ada", conversationId } });
    const text = (input: unknown, options: object, key?: string) =>
      dataOf(service.post(`${AGENT}/text`, { input, options }, keyed(key)));
    const stream = async (input: unknown, options: object, key?: string): Promise<Loose> => {
      return (await partsOf(await service.post(`${AGENT}/stream`, { input, options }, keyed(key)))).at(-1);
    };
    const lastIds = async (id: string) => (await stored(id)).slice(-2).map((message) => message.id);
    const named = ({ userMessageId, messageId }: Loose) => [userMessageId, messageId];

    for (const [door, ask] of [
      ["text", text],
      ["stream", stream],
    ] as const) {
      const first = await ask("Hello", memory(door));
      assert.deepEqual(named(first), await lastIds(door), `${door}: the first turn`);
      const second = await ask("Again", memory(door));
      assert.deepEqual(named(second), await lastIds(door), `${door}: a later turn`);
      upstream.replies(calls([{ name: "add", input: INPUT }]), says("Three."));
      const third = await ask("Add", memory(door));
      assert.deepEqual(named(third), await lastIds(door), `${door}: a turn with a checkpoint`);
      const own = await ask([{ id: "mine", role: "user", content: "Hi" }], memory(door));
      assert.deepEqual(named(own), ["mine", (await stored(door)).at(-1).id], `${door}: the client's own id`);
      const edited = await ask([{ id: first.userMessageId, role: "user", content: "Edited" }], memory(door));
      assert.deepEqual(named(edited), await lastIds(door), `${door}: an edit`);
      assert.equal((await stored(door)).length, 2, `${door}: the edit is of the first turn`);
      const kept = await ask("Kept", memory(door), `${door}-key`);
      assert.deepEqual(named(kept), await lastIds(door), `${door}: with an idempotency key`);
      const again = await ask("Kept", memory(door), `${door}-key`);
      assert.deepEqual(named(again), named(kept), `${door}: the same request again`);
      assert.equal((await stored(door)).length, 4);

      const readOnly = { memory: { userId: "ada", conversationId: door, options: { readOnly: true } } };
      for (const options of [{}, readOnly])
        assert.deepEqual(named(await ask("Nothing", options)), [undefined, undefined], `${door}: nothing is stored`);
    }

    const options = { ...memory("background"), background: true };
    const { runId } = await dataOf202(service.post(`${AGENT}/text`, { input: "Go on", options }));
    const followed = await partsOf(await service.get(`${AGENT}/runs/${runId}/stream?userId=ada`));
    assert.deepEqual(named(followed.at(-1)), await lastIds("background"), "a run that is followed");
  });
}

const keyed = (key?: string): Record<string, string> => (key === undefined ? {} : { "idempotency-key": key });
const dataOf202 = async (reply: Promise<Response>): Promise<Loose> => ((await (await reply).json()) as Loose).data;
