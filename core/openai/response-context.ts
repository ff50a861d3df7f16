/** The context of a response: the responses before it, and the items to which its request refers. */
import type { Charge } from "../http/exchange.ts";
import { mayAccess, type Principal } from "../identity/principal.ts";
import { quoted } from "../lib/errors.ts";
import { OpenaiError } from "./errors.ts";
import { partsOf, unansweredCalls } from "./item-parts.ts";
import { type ConversationItem, type EarlierItems, messagesOf, type ReadItem, responseOfItem } from "./items.ts";
import type { InputMessage } from "./places.ts";
import type { InputItem } from "./response-input.ts";
import type { ResponseRecord, ResponseRows } from "./response-rows.ts";
import type { Responses } from "./responses.ts";
import { isNothing } from "./tools.ts";

/** Most responses that one may continue, and most responses to whose items one request may refer. */
const MAX_CHAIN = 500;
/** Most characters that are read for one request. */
const MAX_CHARACTERS = 32 * 1024 * 1024;

/** Statuses of responses that can be continued, because they have ended. */
const CONTINUED: ReadonlySet<string> = new Set(["completed", "incomplete"]);

const NOTHING_EARLIER: EarlierItems = { items: [], chain: [], size: 0 };

/** The conversation up to the end of a response. What is read from the store later starts after one that is not stored. */
export function continued({ items, chain, size }: EarlierItems, record: ResponseRecord): EarlierItems {
  const { id, store } = record.resource;
  const own = itemsOf(record);
  return { items: [...items, ...own], chain: store ? [...chain, id] : [], size: size + JSON.stringify(own).length };
}

/**
 * The items of the response and of those before it; none without an id. If one of them no longer exists, starts after that.
 *
 * @throws OpenaiError when the response does not exist for this principal, has not ended, or has too much before it
 */
export async function readEarlier(
  responses: Responses,
  id: string | null | undefined,
  principal: Principal,
  charge: Charge | undefined,
): Promise<EarlierItems> {
  if (isNothing(id)) return NOTHING_EARLIER;
  const { rows } = responses;
  const found = await responses.lookUp(id, principal, charge);
  if (found === undefined)
    throw unusable("previous_response_not_found", `previous response ${quoted(id)} does not exist`);
  const { record } = found;
  if (!CONTINUED.has(record.resource.status))
    throw unusable("invalid_value", `previous_response_id is that of a response that is ${record.resource.status}`);
  const chain = [...record.chain, id];
  requireChain(chain);
  let items: ConversationItem[] = [];
  let expected = 0;
  let size = 0;
  for await (const group of rows.readAll(chain)) {
    for (const each of group) {
      const place = chain.indexOf(each.record.resource.id, expected);
      if (place !== expected) items = [];
      expected = place + 1;
      items.push(...itemsOf(each.record));
      size += each.size;
    }
    if (size > MAX_CHARACTERS) throw tooLong("previous_response_id has too much text before it");
    charge?.copies(size);
  }
  return { items: withTheirCalls(items), chain, size };
}

/** @throws OpenaiError for a conversation of too many responses */
export function requireChain(chain: readonly string[]): void {
  if (chain.length > MAX_CHAIN) throw tooLong(`previous_response_id has more than ${MAX_CHAIN} responses before it`);
}

/** Removes outputs without a call: the call may have been in an earlier response that no longer exists. */
function withTheirCalls(items: readonly ConversationItem[]): ConversationItem[] {
  const calls = unansweredCalls(items);
  return items.filter((item) => item.type !== "function_call_output" || calls.has(item.call_id));
}

const itemsOf = ({ input, resource }: ResponseRecord): readonly ConversationItem[] => [...input, ...resource.output];

const unusable = (code: string, message: string) =>
  new OpenaiError("invalid_input", message, code, "previous_response_id");
const tooLong = (message: string) => unusable("context_length_exceeded", `${message}: begin a new one`);

/** Replaces references to items by these items. @throws OpenaiError for an item that does not exist for this principal */
export async function resolveReferences(
  rows: ResponseRows,
  items: readonly InputItem[],
  principal: Principal,
  charge: Charge | undefined,
): Promise<ConversationItem[]> {
  const references = items.filter((item) => item.type === "item_reference");
  if (references.length === 0) return items as ConversationItem[];
  const responses = [...new Set(references.map(({ id }) => responseOfItem(id)))].filter((id) => id !== undefined);
  if (responses.length > MAX_CHAIN) throw referenceError("context_length_exceeded", "refers to too many responses");
  const known = new Map<string, ConversationItem>();
  let size = 0;
  for await (const group of rows.readAll(responses)) {
    for (const { record, size: own } of group) {
      size += own;
      if (!mayAccess(principal, record.owner, undefined)) continue;
      for (const item of itemsOf(record)) known.set(item.id, item);
    }
    if (size > MAX_CHARACTERS) throw referenceError("context_length_exceeded", "refers to too much text");
    charge?.copies(size);
  }
  const used = new Set<string>();
  return items.map((item, index) => {
    if (item.type !== "item_reference") return item;
    if (used.has(item.id)) {
      const twice = `input[${index}].id: item ${quoted(item.id)} is referred to twice`;
      throw new OpenaiError("invalid_input", twice, "invalid_value", "input");
    }
    used.add(item.id);
    const found = known.get(item.id);
    if (found !== undefined) return found;
    const message = `input[${index}].id: item ${quoted(item.id)} does not exist`;
    throw new OpenaiError("not_found", message, "item_not_found", "input");
  });
}

const referenceError = (code: string, message: string) =>
  new OpenaiError("invalid_input", `input ${message}`, code, "input");

/** The whole conversation as messages. @throws ServiceError `invalid_input` that names the field of the request */
export function conversationOf(
  instructions: string | null | undefined,
  { items: earlier }: EarlierItems,
  input: readonly ConversationItem[],
): InputMessage[] {
  const open = unansweredCalls([...earlier, ...input]);
  const read = (items: readonly ConversationItem[], pathOf: (index: number) => string): ReadItem[] =>
    items.map((item, index) => ({ item, path: pathOf(index), parts: partsOf(item, pathOf(index), open) }));
  const messages = messagesOf([...read(earlier, () => "previous_response_id"), ...read(input, (at) => `input[${at}]`)]);
  return instructions ? [{ role: "system", content: instructions }, ...messages] : messages;
}
