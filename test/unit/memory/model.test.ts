/** Any calls, in any order and by two processes at once, leave what a plain model of them leaves. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ServiceError } from "../../../core/lib/errors.ts";
import type { MemoryAccess } from "../../../core/memory/scoped.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { checkConsistency, listed, openMemories, said, textsOf } from "../../support/memories.ts";

const id = fc.constantFrom("a", "b", "c");
const message = fc.constantFrom("m1", "m2", "m3");
const operation = fc.oneof(
  fc.record({ kind: fc.constant("create" as const), id }),
  fc.record({ kind: fc.constant("append" as const), id, message: fc.option(message, { nil: undefined }) }),
  fc.record({ kind: fc.constant("save" as const), ids: fc.array(id, { minLength: 1, maxLength: 3 }), message }),
  fc.record({ kind: fc.constant("update" as const), id }),
  fc.record({ kind: fc.constant("delete" as const), id }),
  fc.record({ kind: fc.constant("deleteMessages" as const), id, messages: fc.array(message, { maxLength: 2 }) }),
  fc.record({ kind: fc.constant("clone" as const), id, to: id }),
);
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

/** A conversation of the model: texts of its messages in order, by id; those without one have a key of their own. */
type Model = Map<string, Map<string, string>>;

function call(access: MemoryAccess, one: Operation, text: string): Promise<unknown> {
  switch (one.kind) {
    case "create":
      return access.create({ id: one.id, userId: "ada", resourceId: one.id });
    case "append":
      return access.append({ id: one.id, userId: "ada", resourceId: one.id }, [said(text, one.message)]);
    case "save":
      return access.save(one.ids.map((conversationId) => ({ conversationId, message: said(text, one.message) })));
    case "update":
      return access.update(one.id, { title: text });
    case "delete":
      return access.delete(one.id);
    case "deleteMessages":
      return access.deleteMessages(one.id, one.messages);
    case "clone":
      return access.clone(one.id, { newConversationId: one.to, includeMessages: true });
  }
}

/** The error that the call must end with, or null. */
function apply(model: Model, one: Operation, text: string): string | null {
  const ids = one.kind === "save" ? one.ids : [one.id];
  if (one.kind === "create" || one.kind === "append") {
    if (model.has(one.id) && one.kind === "create") return "conflict";
    if (!model.has(one.id)) model.set(one.id, new Map());
  }
  if (ids.some((one) => !model.has(one))) return "not_found";
  const [first] = ids.map((one) => model.get(one)!);
  if (one.kind === "save") for (const to of ids) model.get(to)!.set(one.message, text);
  if (one.kind === "append") first!.set(one.message ?? text, text);
  if (one.kind === "delete") model.delete(one.id);
  if (one.kind === "deleteMessages") for (const gone of one.messages) first!.delete(gone);
  if (one.kind === "clone") {
    if (model.has(one.to)) return "conflict";
    // New ids: nothing that is saved later meets them.
    model.set(one.to, new Map([...first!.values()].map((copied, index) => [`${text}:${index}`, copied])));
  }
  return null;
}

const end = (promise: Promise<unknown>) =>
  promise.then(
    () => null,
    (error: unknown) => (error instanceof ServiceError ? error.kind : String(error)),
  );

async function twoProcesses() {
  const store = createMemoryStore();
  let now = 0;
  const opened = await Promise.all([0, 1].map(() => openMemories({ store, now: () => ++now })));
  return { store, accesses: opened.map(({ access }) => access) };
}

test("calls one after the other, each by either of two processes", async () => {
  const steps = fc.array(fc.tuple(operation, fc.integer({ min: 0, max: 1 })), { maxLength: 25 });
  await fc.assert(
    fc.asyncProperty(steps, async (list) => {
      const { store, accesses } = await twoProcesses();
      const model: Model = new Map();
      for (const [index, [one, process]] of list.entries()) {
        const text = `t${index}`;
        const expected = apply(model, one, text);
        assert.equal(await end(call(accesses[process]!, one, text)), expected, JSON.stringify(one));
      }
      for (const access of accesses) {
        const page = await listed(access.list({ limit: 9, offset: 0, orderBy: "updated_at", orderDirection: "DESC" }));
        assert.deepEqual(
          [page.total, page.conversations.map((one) => one.id).sort()],
          [model.size, [...model.keys()].sort()],
        );
        for (const [id, messages] of model) assert.deepEqual(await textsOf(access, id), [...messages.values()]);
      }
      await checkConsistency(store);
    }),
    { numRuns: 200 },
  );
});

test("calls all at once by two processes end as they may, and leave indexes and totals that are right", async () => {
  const steps = fc.array(fc.tuple(operation, fc.integer({ min: 0, max: 1 })), { maxLength: 25 });
  await fc.assert(
    fc.asyncProperty(steps, async (list) => {
      const { store, accesses } = await twoProcesses();
      await accesses[0]!.create({ id: "a", userId: "ada", resourceId: "a" });
      const ends = await Promise.all(
        list.map(([one, process], index) => end(call(accesses[process]!, one, `t${index}`))),
      );
      for (const kind of ends) assert.ok(kind === null || kind === "conflict" || kind === "not_found", String(kind));
      await checkConsistency(store);
    }),
    { numRuns: 150 },
  );
});
