import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { openMemories, pageOf, rejectsAs, said, textOf, textsOf, watched } from "../../support/memories.ts";

const ADA = { id: "c", userId: "ada", resourceId: "desk" };
const at = (time: number) => new Date(time).toISOString();

async function opened(now?: () => number) {
  const memories = await openMemories(now === undefined ? {} : { now });
  await memories.access.create(ADA);
  return memories;
}

test("messages come back in the form in which they were saved", async () => {
  const { access } = await opened();
  const messages = [
    {
      id: "1",
      role: "user" as const,
      parts: [{ type: "text", text: "hi" }],
      metadata: { a: [1] },
      createdAt: at(1000),
    },
    { id: "2", role: "assistant" as const, content: "hello", createdAt: at(2000) },
    {
      id: "3",
      role: "tool" as const,
      content: [{ type: "tool-result", output: { value: "\u001e \u2028" } }],
      createdAt: at(3000),
    },
  ];
  assert.equal(await access.save(messages.map((message) => ({ conversationId: "c", message }))), 3);
  const page = await pageOf(access, "c");
  assert.deepEqual(
    page.messages,
    messages.map((message) => ({ metadata: {}, ...message })),
  );
  assert.deepEqual((await access.earlier("c", { limit: 2 })).messages, page.messages.slice(1));
  assert.deepEqual(page.conversation, await access.get("c"));
});

test("a message without an id gets one, which then replaces and deletes it", async () => {
  const { access } = await opened();
  await access.save(["one", "two", "three"].map((text) => ({ conversationId: "c", message: said(text) })));
  const ids = (await pageOf(access, "c")).messages.map((message) => message.id);
  assert.equal(new Set(ids).size, 3);
  await access.save([{ conversationId: "c", message: said("2", ids[1]) }]);
  assert.deepEqual(await textsOf(access, "c"), ["one", "2", "three"]);
  assert.equal(await access.deleteMessages("c", [ids[0]!, ids[0]!, "unknown"]), 1);
  assert.deepEqual(await textsOf(access, "c"), ["2", "three"]);
});

test("an id that exists is replaced in place, keeps its time, and may change its role", async () => {
  let now = 1000;
  const { access } = await opened(() => now++);
  await access.save(["a", "b"].map((id) => ({ conversationId: "c", message: said(id, id) })));
  const [before] = (await pageOf(access, "c")).messages;
  const content = "again";
  await access.save([{ conversationId: "c", message: { id: "a", role: "assistant", content, createdAt: at(9e6) } }]);
  const { messages } = await pageOf(access, "c");
  assert.deepEqual(messages[0], { id: "a", role: "assistant", content, metadata: {}, createdAt: before!.createdAt });
  assert.equal(messages[1]?.id, "b");
});

test("an id that comes twice in one batch is one message, as the last one says", async () => {
  const { access } = await opened();
  const batch = [said("1", "x"), said("2", "y"), said("3", "x")];
  assert.equal(await access.save(batch.map((message) => ({ conversationId: "c", message }))), 3);
  assert.deepEqual(await textsOf(access, "c"), ["3", "2"]);
});

test("an id in the form of ours, of another conversation or made up, is an id like any other", async () => {
  const { access } = await opened();
  await access.create({ ...ADA, id: "d" });
  await access.save([{ conversationId: "c", message: said("original") }]);
  const [{ id }] = (await pageOf(access, "c")).messages as unknown as [{ id: string }];
  const forged = `${id.slice(0, -1)}${id.endsWith("0") ? 1 : 0}`;
  await access.save([
    { conversationId: "d", message: said("copy", id) },
    { conversationId: "c", message: said("forged", forged) },
  ]);
  await access.save([{ conversationId: "d", message: said("copy again", id) }]);
  assert.deepEqual(await textsOf(access, "c"), ["original", "forged"]);
  assert.deepEqual(await textsOf(access, "d"), ["copy again"]);
  assert.equal(await access.deleteMessages("c", [forged]), 1);
  assert.deepEqual(await textsOf(access, "c"), ["original"]);
  assert.equal(await access.deleteMessages("d", [id]), 1);
});

test("saving moves updatedAt, and a batch over several conversations is one commit", async () => {
  let now = 1000;
  const { store, seen } = watched(createMemoryStore());
  const { access } = await openMemories({ store, now: () => now });
  for (const id of ["c", "d"]) await access.create({ ...ADA, id });
  now = 2000;
  seen.commits.length = 0;
  const saved = await access.save(
    ["c", "d", "c"].map((conversationId) => ({ conversationId, message: said(conversationId) })),
  );
  assert.deepEqual([saved, seen.commits.length], [3, 1]);
  for (const id of ["c", "d"]) assert.equal((await access.get(id)).updatedAt, at(2000));
  assert.deepEqual((await textsOf(access, "c")).length, 2);
});

test("when one conversation of a batch does not exist nothing of it is saved", async () => {
  const { access } = await opened();
  await rejectsAs(
    access.save(["c", "none"].map((conversationId) => ({ conversationId, message: said("x") }))),
    "not_found",
    /"none"/,
  );
  assert.deepEqual(await textsOf(access, "c"), []);
});

test("saving into a conversation in use reads nothing, and is one commit of few rows", async () => {
  let now = 1000;
  const { store, seen } = watched(createMemoryStore());
  const { access } = await openMemories({ store, now: () => now++ });
  await access.create(ADA);
  seen.reads = 0;
  seen.commits.length = 0;
  await access.save([{ conversationId: "c", message: said("one") }]);
  await access.save([{ conversationId: "c", message: said("two") }]);
  assert.equal(seen.reads, 0);
  assert.deepEqual(
    seen.commits.map(({ put, delete: gone }) => [put?.length, gone?.length]),
    [
      [4, 2],
      [4, 2],
    ],
  );
});

test("messages that make no sense are refused before anything is written", async () => {
  const { access } = await opened();
  const bad = [
    [{ role: "robot", content: "x" }, /message\.role must be one of/],
    [{ role: "user" }, /message\.parts or message\.content is required/],
    [{ role: "user", content: "x", createdAt: "1969-12-31T00:00:00Z" }, /message\.createdAt/],
    [{ role: "user", content: "x", createdAt: "soon" }, /message\.createdAt/],
    [{ role: "user", content: "x", id: "" }, /message\.id/],
  ] as const;
  for (const [message, pattern] of bad) {
    const entries = [said("good"), message as ReturnType<typeof said>].map((one) => ({
      conversationId: "c",
      message: one,
    }));
    await rejectsAs(access.save(entries), "invalid_input", pattern);
  }
  assert.deepEqual(await textsOf(access, "c"), []);
});

test("before and after are exclusive, roles filter, and the newest that match come in order", async () => {
  const { access } = await opened();
  const roles = ["user", "assistant", "tool", "system"] as const;
  await access.save(
    Array.from({ length: 1000 }, (_, index) => ({
      conversationId: "c",
      message: { role: roles[index % 4]!, content: String(index), createdAt: at(1000 + Math.floor(index / 2)) },
    })),
  );
  const texts = (query: object) => textsOf(access, "c", query);
  assert.deepEqual(await texts({ limit: 3 }), ["997", "998", "999"]);
  assert.deepEqual(await texts({ after: 1000, before: 1002 }), ["2", "3"]);
  assert.deepEqual(await texts({ after: 1498 }), ["998", "999"]);
  assert.deepEqual(await texts({ before: 1001, limit: 1 }), ["1"]);
  assert.deepEqual(await texts({ before: 1000 }), []);
  assert.deepEqual(await texts({ before: -5 }), []);
  assert.deepEqual(await texts({ after: 1e20 }), []);
  assert.deepEqual((await texts({ before: 1e20, after: -5, limit: 1000 })).length, 1000);
  assert.deepEqual(await texts({ roles: ["tool"], limit: 2 }), ["994", "998"]);
  assert.deepEqual(await texts({ roles: ["tool", "user"], before: 1002 }), ["0", "2"]);
  assert.equal((await texts({ roles: ["system"], limit: 1000 })).length, 250);
  assert.deepEqual(await texts({ limit: 0 }), []);
});

test("a page is what a list of all messages, filtered, ends with", async () => {
  const roles = ["user", "assistant", "tool"] as const;
  const message = fc.record({ role: fc.constantFrom(...roles), time: fc.integer({ min: 0, max: 12 }) });
  const query = fc.record({
    limit: fc.integer({ min: 1, max: 9 }),
    before: fc.option(fc.integer({ min: -1, max: 13 }), { nil: undefined }),
    after: fc.option(fc.integer({ min: -1, max: 13 }), { nil: undefined }),
    roles: fc.option(fc.subarray([...roles]), { nil: undefined }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(message, { maxLength: 20 }), query, async (messages, { before, after, roles, limit }) => {
      const { access } = await opened();
      const entries = messages.map(({ role, time }, index) => ({ role, content: String(index), createdAt: at(time) }));
      await access.save(entries.map((one) => ({ conversationId: "c", message: one })));
      const expected = messages
        .map((one, index) => ({ ...one, text: String(index) }))
        .sort((a, b) => a.time - b.time)
        .filter(({ time, role }) => time < (before ?? 99) && time > (after ?? -1) && (roles ?? [role]).includes(role))
        .map((one) => one.text);
      const page = await pageOf(access, "c", {
        limit,
        ...(before !== undefined && { before }),
        ...(after !== undefined && { after }),
        ...(roles !== undefined && { roles }),
      });
      assert.deepEqual(page.messages.map(textOf), expected.slice(-limit));
    }),
    { numRuns: 150 },
  );
});

test("a generation's messages make the conversation, with a short title, and go on in it afterwards", async () => {
  const { access } = await openMemories();
  const title = `${"ä".repeat(79)}😀 and so on`;
  assert.deepEqual((await access.earlier("c", { limit: 10 })).messages, []);
  await access.append({ ...ADA, title }, [said("one", "1")]);
  await access.append({ ...ADA, title: "other" }, [said("uno", "1"), said("two")]);
  await access.append({ ...ADA, id: "empty" }, []);
  assert.deepEqual(await textsOf(access, "c"), ["uno", "two"]);
  assert.equal((await access.get("c")).title, `${"ä".repeat(79)}😀`);
  assert.deepEqual((await access.earlier("c", { limit: 1 })).messages.map(textOf), ["two"]);
  assert.deepEqual((await access.earlier("c", { limit: 0 })).messages, []);
  assert.deepEqual(await textsOf(access, "empty"), []);
});

test("messages to be summed up are read in pieces of some megabytes, however long they are", async () => {
  const { access } = await opened();
  const long = "x".repeat(1024 * 1024);
  for (let count = 0; count < 40; count++)
    await access.save([{ conversationId: "c", message: said(long, `m${count}`) }]);
  const first = await access.unsummarized({ id: "c", userId: "ada" }, "m39", 100);
  assert.equal(first?.full, true);
  assert.ok(first.messages.length > 0 && first.messages.length < 39, String(first.messages.length));
  await access.summarize({ id: "c", userId: "ada" }, "long", first.positions.at(-1)!);
  const second = await access.unsummarized({ id: "c", userId: "ada" }, "m39", 100);
  assert.equal(second?.messages[0]?.id, `m${first.messages.length}`);
  const few = await access.unsummarized({ id: "c", userId: "ada" }, "m39", 3);
  assert.deepEqual([few?.messages.length, few?.full], [3, true]);
});
