/** Reads `input` of a response: a text or items, as items with an id. */
import { objectsIn, textAt } from "../http/decode.ts";
import { invalid, listed } from "../lib/errors.ts";
import { type Fields, isObject } from "../lib/is-object.ts";
import { type ConversationItem, itemId, type MessageItem } from "./items.ts";
import { isNothing } from "./tools.ts";

/** A reference to an item of a stored response. */
interface ItemReference {
  readonly type: "item_reference";
  readonly id: string;
}

export type InputItem = ConversationItem | ItemReference;

const ROLES: readonly string[] = ["user", "system", "developer", "assistant"] satisfies MessageItem["role"][];
const MAX_CALL_ID = 256;

/** Readers by type of item. Each builds a new item, so that unknown fields are dropped. */
const READERS: Readonly<Record<string, (item: Fields, path: string, newId: NewId) => InputItem>> = {
  message: readMessage,
  function_call(item, path, newId) {
    return {
      type: "function_call",
      id: newId("function_call"),
      ...called(item, path),
      status: "completed",
      ...metadata(item, path),
    };
  },
  function_call_output(item, path, newId) {
    const { output } = item;
    if (typeof output !== "string" && !Array.isArray(output)) throw invalid(`${path}.output must be string or array`);
    const id = newId("function_call_output");
    return { type: "function_call_output", id, call_id: callId(item, path), output, status: "completed" };
  },
  reasoning(item, path, newId) {
    const { summary = [], encrypted_content: content } = item;
    const texts = objectsIn(summary, `${path}.summary`, "array").map(([part, here]) => ({
      type: "summary_text" as const,
      text: textAt(part, "text", here),
    }));
    const carried = typeof content === "string" ? { encrypted_content: content } : undefined;
    return { type: "reasoning", id: newId("reasoning"), summary: texts, status: "completed", ...carried };
  },
  "penstock:tool_call"(item, path, newId) {
    const { output = null, error = null } = item;
    const call = called(item, path);
    const failed = isNothing(error) ? null : textAt(item, "error", path);
    const id = newId("penstock:tool_call");
    const ended = { output, error: failed, status: "completed" as const };
    return { type: "penstock:tool_call", id, ...call, ...ended, ...metadata(item, path) };
  },
  compaction(item, path, newId) {
    const content = textAt(item, "encrypted_content", path);
    return { type: "compaction", id: newId("compaction"), encrypted_content: content, status: "completed" };
  },
  item_reference: (item, path) => ({ type: "item_reference", id: textAt(item, "id", path) }),
};

type NewId = (type: ConversationItem["type"]) => string;

/** @throws ServiceError `invalid_input` that names the field */
export function readInput(input: unknown, response: string): InputItem[] {
  let count = 0;
  const newId: NewId = (type) => itemId(type, response, `i${count++}`);
  if (typeof input === "string") return [readMessage({ role: "user", content: input }, "input", newId)];
  const items = objectsIn(input, "input");
  if (items.length === 0) throw invalid("input must not be empty");
  return items.map(([item, path]) => {
    // The type of messages is optional, and some clients leave out the type of a reference.
    const type = item.type ?? (item.role === undefined ? "item_reference" : "message");
    const reader = typeof type === "string" && Object.hasOwn(READERS, type) ? READERS[type] : undefined;
    if (reader === undefined) throw invalid(`${path}.type must be one of ${listed(Object.keys(READERS))}`);
    return reader(item, path, newId);
  });
}

function readMessage(item: Fields, path: string, newId: NewId): MessageItem {
  const { role, content, phase } = item;
  if (typeof role !== "string" || !ROLES.includes(role)) throw invalid(`${path}.role must be one of ${listed(ROLES)}`);
  const type = role === "assistant" ? "output_text" : "input_text";
  const parts = typeof content === "string" ? [{ type, text: content }] : content;
  if (!Array.isArray(parts)) throw invalid(`${path}.content must be string or array`);
  return {
    type: "message",
    id: newId("message"),
    role: role as MessageItem["role"],
    content: parts,
    status: "completed",
    ...(typeof phase === "string" && { phase }),
    ...metadata(item, path),
  };
}

function metadata({ provider_metadata: given }: Fields, path: string) {
  if (isNothing(given)) return undefined;
  if (!isObject(given) || !Object.values(given).every(isObject))
    throw invalid(`${path}.provider_metadata must be an object of objects, one for each provider`);
  return { provider_metadata: given as NonNullable<ConversationItem["provider_metadata"]> };
}

const called = (item: Fields, path: string) => ({
  call_id: callId(item, path),
  name: textAt(item, "name", path),
  arguments: textAt(item, "arguments", path),
});

function callId(item: Fields, path: string): string {
  const id = textAt(item, "call_id", path);
  if (id === "" || id.length > MAX_CALL_ID) throw invalid(`${path}.call_id must be 1 to ${MAX_CALL_ID} characters`);
  return id;
}
