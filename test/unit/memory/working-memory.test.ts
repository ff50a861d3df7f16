import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type Json, merge } from "../../../core/memory/working-memory/content.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { openMemories, rejectsAs, user } from "../../support/memories.ts";

const ADA = { id: "c", userId: "ada", resourceId: "desk" };
const SCHEMA = {
  type: "object",
  properties: {
    name: { type: "string" },
    likes: { type: "array", items: { type: "string" } },
    more: { type: "object" },
  },
  additionalProperties: false,
};

async function opened(workingMemory?: object) {
  const memories = await openMemories({ memory: { default: workingMemory === undefined ? {} : { workingMemory } } });
  await memories.access.create(ADA);
  const content = async (id = "c") => (await memories.access.workingMemory(id, {})).content;
  return { ...memories, content };
}

test("markdown working memory: nothing stored is null, replace replaces, append joins with a blank line", async () => {
  const { access, content } = await opened({ template: "# Profile" });
  const empty = { content: null, scope: "conversation", format: "markdown", template: "# Profile" };
  assert.deepEqual(await access.workingMemory("c", {}), empty);
  await access.updateWorkingMemory("c", "one", "append", {});
  await access.updateWorkingMemory("c", "two", "append", { userId: "ada" });
  assert.equal(await content(), "one\n\ntwo");
  await access.updateWorkingMemory("c", "three", "replace", { scope: "conversation" });
  assert.equal(await content(), "three");
  await rejectsAs(
    access.updateWorkingMemory("c", { a: 1 }, "replace", {}),
    "invalid_input",
    /content must be a string/,
  );
});

test("JSON working memory: append is a deep merge with lists joined without duplicates, given back as JSON text", async () => {
  const { access, content } = await opened({ schema: SCHEMA });
  assert.deepEqual(await access.workingMemory("c", {}), {
    content: null,
    scope: "conversation",
    format: "json",
    template: null,
  });
  await access.updateWorkingMemory("c", { name: "Ada", likes: ["tea"], more: { a: { x: 1 } } }, "append", {});
  await access.updateWorkingMemory(
    "c",
    '{"likes": ["tea", "cake"], "more": {"a": {"y": [1, {"z": 2}]}}}',
    "append",
    {},
  );
  await access.updateWorkingMemory("c", { more: { a: { y: [{ z: 2 }, 3], x: 5 } } }, "append", {});
  assert.deepEqual(JSON.parse((await content())!), {
    name: "Ada",
    likes: ["tea", "cake"],
    more: { a: { x: 5, y: [1, { z: 2 }, 3] } },
  });
  await access.updateWorkingMemory("c", { name: "Bob" }, "replace", {});
  assert.equal(await content(), '{"name":"Bob"}');
});

test("JSON working memory that fails the schema, also only after the merge, is refused and changes nothing", async () => {
  const { access, content } = await opened({ schema: { ...SCHEMA, required: ["name"] } });
  await rejectsAs(
    access.updateWorkingMemory("c", { likes: [1] }, "replace", {}),
    "invalid_input",
    /content\.name is required.*content\.likes\[0\] must be string|content\.likes\[0\] must be string.*content\.name is required/,
  );
  await access.updateWorkingMemory("c", { name: "Ada" }, "append", {});
  await access.updateWorkingMemory("c", { likes: ["tea"] }, "append", {});
  const before = await content();
  for (const wrong of [{ likes: "tea" }, { age: 3 }, "no JSON", "[1]", "null"]) {
    await rejectsAs(access.updateWorkingMemory("c", wrong, "append", {}), "invalid_input", /content/);
  }
  assert.equal(await content(), before);
});

test("working memory of scope user is shared by all conversations, stays when one is deleted, and exists before the first", async () => {
  const { access, content } = await opened({ scope: "user" });
  await access.create({ ...ADA, id: "d" });
  await access.create({ ...ADA, id: "other", userId: "bob" });
  await access.updateWorkingMemory("c", "likes tea", "replace", {});
  assert.deepEqual([await content("d"), await content("other")], ["likes tea", null]);
  await access.delete("c");
  assert.equal(await content("d"), "likes tea");
  assert.equal((await access.workingMemoryIfAny({ id: "new", userId: "ada" }))?.content, "likes tea");
  assert.equal((await access.workingMemoryIfAny({ id: "new", userId: "bob" }))?.content, null);
});

test("scope and userId of a request for working memory must fit: another scope, another user, or none with scope=user is refused", async () => {
  const { access, named } = await opened({ scope: "user" });
  await rejectsAs(access.workingMemory("c", { scope: "conversation" }), "invalid_input", /scope must be user/);
  await rejectsAs(access.workingMemory("c", { scope: "user" }), "invalid_input", /userId is required/);
  await rejectsAs(access.workingMemory("c", { userId: "bob" }), "invalid_input", /owner/);
  await rejectsAs(access.updateWorkingMemory("c", "x", "replace", { userId: "bob" }), "invalid_input", /owner/);
  assert.equal((await access.workingMemory("c", { scope: "user", userId: "ada" })).content, null);
  assert.equal((await named("default").for(user("ada")).workingMemory("c", { scope: "user" })).content, null);
  await rejectsAs(access.workingMemory("none", {}), "not_found");
});

test("a memory without working memory says so, and a generation gets none", async () => {
  const { access } = await opened();
  await rejectsAs(access.workingMemory("c", {}), "invalid_input", /memory\.default\.workingMemory/);
  await rejectsAs(access.updateWorkingMemory("c", "x", "replace", {}), "invalid_input", /has no working memory/);
  assert.equal(await access.workingMemoryIfAny({ id: "c", userId: "ada" }), null);
});

test("working memory cannot grow beyond its limit", async () => {
  const { access } = await opened({});
  const half = "x".repeat(150_000);
  await access.updateWorkingMemory("c", half, "append", {});
  await rejectsAs(access.updateWorkingMemory("c", half, "append", {}), "invalid_input", /at most 262144 characters/);
});

test("a working memory schema that does not compile is an error that names it", async () => {
  const memory = { default: { workingMemory: { schema: { type: "object", $ref: "#/$defs/none" } } } };
  await assert.rejects(openMemories({ memory }), /memory\.default\.workingMemory\.schema/);
});

test("appends to working memory from two processes at once all stay", async () => {
  const store = createMemoryStore();
  const memory = { default: { workingMemory: { format: "json", schema: { type: "object" } } } };
  const accesses = await Promise.all([0, 1].map(async () => (await openMemories({ store, memory })).access));
  await accesses[0]!.create(ADA);
  const numbers = Array.from({ length: 30 }, (_, index) => index);
  await Promise.all(
    numbers.map((index) => accesses[index % 2]!.updateWorkingMemory("c", { list: [index] }, "append", {})),
  );
  const { list } = JSON.parse((await accesses[0]!.workingMemory("c", {})).content!) as { list: number[] };
  assert.deepEqual(
    list.sort((a, b) => a - b),
    numbers,
  );
});

test("JSON working memory: appending lists takes work in proportion to their length, whatever their items are", () => {
  const looks = (count: number, itemOf: (index: number) => Json): number => {
    const counter = { looks: 0 };
    const old = {
      list: counted(
        Array.from({ length: count }, (_, index) => counted(itemOf(index), counter)),
        counter,
      ),
    };
    const added = Array.from({ length: count }, (_, index) => counted(itemOf(index + count), counter));
    const { list } = merge(old, { list: counted(added, counter) }) as { list: Json[] };
    assert.equal(list.length, 2 * count);
    return counter.looks;
  };
  const items: [string, (index: number) => Json][] = [
    ["lists", (index) => [index]],
    ["objects", (index) => ({ index })],
    ["lists in lists", (index) => [[0, [index]]]],
    ["objects with much in common", (index) => ({ a: 1, b: [2], c: { d: 3 }, index })],
  ];
  for (const [name, itemOf] of items) {
    const [few, many] = [looks(200, itemOf), looks(800, itemOf)];
    assert.ok(many <= 4.5 * few, `${name}: ${few} looks at 200 items, ${many} at 800`);
  }
});

test("JSON working memory: items of lists are the same whatever the order of their keys, and differ by type", async () => {
  const { access, content } = await opened({ format: "json" });
  await access.updateWorkingMemory("c", { list: [{ a: 1, b: [2] }, 1, "1", [1], null] }, "append", {});
  const added = [{ b: [2], a: 1 }, "1", 1, ["1"], [1], "null", null, {}, [], { a: 1 }, {}];
  await access.updateWorkingMemory("c", { list: added }, "append", {});
  const list = [{ a: 1, b: [2] }, 1, "1", [1], null, ["1"], "null", {}, [], { a: 1 }];
  assert.deepEqual(JSON.parse((await content())!), { list });
});

test("JSON working memory that is too large or too deep is refused before it is merged, as text and as an object", async () => {
  const { access, content } = await opened({ format: "json" });
  await access.updateWorkingMemory("c", { list: ["x"] }, "append", {});
  // Equal items would leave a small working memory.
  const large = { list: Array.from({ length: 70_000 }, () => "x") };
  const deep = `{"list":${"[".repeat(50_000)}${"]".repeat(50_000)}}`;
  for (const mode of ["append", "replace"] as const) {
    for (const wrong of [large, JSON.stringify(large)]) {
      await rejectsAs(access.updateWorkingMemory("c", wrong, mode, {}), "invalid_input", /at most 262144 characters/);
    }
    for (const wrong of [deep, JSON.parse(deep) as Record<string, unknown>]) {
      await rejectsAs(
        access.updateWorkingMemory("c", wrong, mode, {}),
        "invalid_input",
        /content is nested deeper than/,
      );
    }
  }
  assert.equal(await content(), '{"list":["x"]}');
});

test("merging the same JSON into working memory again changes nothing, and every merged leaf is there", () => {
  const { json } = fc.letrec<{ json: Json }>((tie) => ({
    json: fc.oneof(
      { maxDepth: 3 },
      fc.constantFrom<Json>(null, true, 1, "a", "b"),
      fc.array(tie("json"), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom("a", "b", "__proto__"), tie("json"), { maxKeys: 3, noNullPrototype: true }),
    ) as fc.Arbitrary<Json>,
  }));
  fc.assert(
    fc.property(json, json, (old, added) => {
      const merged = merge(old, added);
      assert.ok(contains(merged, added));
      assert.equal(JSON.stringify(merge(merged, merged)), JSON.stringify(merged));
    }),
  );
});

/** Whether merging `part` had its effect on `whole`. */
function contains(whole: Json, part: Json): boolean {
  if (Array.isArray(part)) return Array.isArray(whole) && part.every((item) => whole.some((one) => equal(one, item)));
  if (typeof part !== "object" || part === null) return whole === part;
  if (typeof whole !== "object" || whole === null || Array.isArray(whole)) return false;
  return Object.keys(part).every((key) => Object.hasOwn(whole, key) && contains(whole[key]!, part[key]!));
}

/** The value, with every look at it and at what is in it counted. */
function counted(value: Json, counter: { looks: number }): Json {
  if (typeof value !== "object" || value === null) return value;
  const look = <T>(result: T): T => {
    counter.looks++;
    return result;
  };
  return new Proxy(value as object, {
    get: (target, key, receiver) => look(counted(Reflect.get(target, key, receiver) as Json, counter)),
    ownKeys: (target) => look(Reflect.ownKeys(target)),
    getOwnPropertyDescriptor: (target, key) => look(Reflect.getOwnPropertyDescriptor(target, key)),
    getPrototypeOf: (target) => look(Reflect.getPrototypeOf(target)),
    has: (target, key) => look(Reflect.has(target, key)),
  }) as Json;
}

const equal = (a: Json, b: Json): boolean => {
  try {
    assert.deepStrictEqual(a, b);
    return true;
  } catch {
    return false;
  }
};
