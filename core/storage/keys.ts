/**
 * The layouts of keys; those of approvals, responses, replies, histories and tasks stand in their rooms. A key is parts joined by `/`; the first
 * part names the table. `NAME` below stands for `encodeText(name)`, `#` for `encodeNumber(n)`; values are JSON.
 *
 *   b/USER                          counter of a user's bytes in conversations, executions and working memory
 *   id/MEMORY/CONVERSATION          -> internal number of the conversation, in the shared space of ids
 *   iu/MEMORY/CONVERSATION/USER     -> the same in the space of a user (IdSpaces, store.ts)
 *   c/#/                            prefix of all rows of one conversation, so that deleting it is one range
 *   c/#/b                           counter of its bytes (stored-bytes.ts)
 *   c/#/i/MESSAGE                   -> position of a message whose id a client chose ("time/sequence")
 *   c/#/m/#time/#sequence           -> the message as the API gives it, `role` first
 *   c/#/n                           -> [the conversation as the API gives it (updatedAt last), messages it ever had];
 *                                   changes with every commit to its messages, so that it is stored next to the last of them
 *   c/#/s                           -> its summary, and up to which position it goes
 *   c/#/w                           -> its working memory
 *   u/MEMORY/USER/#updatedAt/#      -> resource id; the user's conversations by their last change
 *   r/MEMORY/RESOURCE/#updatedAt/#  -> user id; the resource's conversations by their last change
 *   ct/MEMORY/CONVERSATION/USER     -> [process, run, number of its row] whose turn it is in a conversation on a shared store
 *   cs/MEMORY/CONVERSATION/USER     -> the run of that row which is asked to stop: it goes with that row
 *   cc/#                            -> an unfinished copy of a conversation: when it began, memory, user
 *   n/MEMORY/u/USER                 counter of the user's conversations
 *   n/MEMORY/r/RESOURCE             counter of the resource's conversations
 *   w/MEMORY/USER                   -> working memory of a user
 *   w/MEMORY/USER/b                 counter of its bytes
 *   semantic/...                    indexes of semantic search (memory/semantic/exact.ts)
 *   s/NAME                          sequences
 *   x/#/r                           -> an execution that is not running: [record, rest] (workflows/journal)
 *   x/#/b                           counter of its bytes
 *   x/#/j/#                         -> entries of its journal, in the order of their commits
 *   xo/#                            -> a running execution: [process, start, first entries]
 *   xn/ID                           -> number of an execution whose id a client chose, in the shared space of ids
 *   xi/ID/USER                      -> the same in the space of a user
 *   xs/STATUS/#createdAt/#          -> when it ended, or 0; executions that are not running, by creation
 *   xw/WORKFLOW/STATUS/#createdAt/# -> the same of one workflow
 *   xu/USER/STATUS/#createdAt/#     -> the same of one user
 *   xv/USER/WORKFLOW/STATUS/...     -> the same of one user and workflow
 *   xd/HASH                         -> a definition that executions are pinned to
 *   xr/AGENT/USER/CONVERSATION/#createdAt/# -> id of a running run that is found by its conversation: it goes with that run's `xo` row
 *   xp/PROCESS                      -> a process on a shared store: its last heartbeat (membership.ts)
 *   xc/#                            -> a request to the process that runs an execution: to suspend or cancel it
 *   xc/#/STEP                       -> the same to resume a step of it that waits
 *   th/SEGMENT                      -> head of a segment of traces (traces/segment.ts); SEGMENT is `#sealedAt/PROCESS`
 *   td/SEGMENT                      -> its spans
 *   tl/#second/SEGMENT              a segment with spans that began in that second, long before it was sealed
 *   tf/TRACE/SEGMENT                a segment with spans of a trace whose id came from a caller, and so encodes no time
 *   n/t/WHAT                        counters: traces, spans, and characters of them
 *   kv/NAMESPACE/KEY                -> an entry of a plugin: the key as it wrote it, the value, when it expires
 *   kx/#expires/NAMESPACE/KEY       -> key of an entry that expires
 *
 * Conversations are numbered in the order of their creation, so that new rows are written at the end of the tree.
 */

import { createHash } from "node:crypto";
import { canonicalJson } from "../lib/canonical-json.ts";
import type { Commit, IdKeys, OwnedRows, Range, Tail } from "./store.ts";

// Encodes the parts of keys as visible ASCII without `/`, which every engine sorts alike. A key is parts joined by `/`.

const DIGITS = 9;
/** 36 ** 9: enough for milliseconds since 1970 until the year 5188, and for more rows than a disk can hold. */
export const NUMBER_LIMIT = 36 ** DIGITS;

/** Longest result of `encodeText`, so that two of them and some numbers fit into a key. */
const MAX_TEXT_BYTES = 200;
/** How much of a longer text stays readable, before its digest. */
const READABLE_BYTES = 100;

const PLAIN = /^[!-$&-.0-~]{0,200}$/;
const SPECIAL = /[^!-$&-.0-~]/gu;
/** Every engine takes keys of this length, also in PostgreSQL's index. */
const MAX_KEY_BYTES = 512;
const KEY = /^[!-~]+$/;

/** Slots of the cache of encoded numbers: one commit encodes the same few numbers many times. */
const CACHE_SLOTS = 1024;
const cachedNumbers: number[] = new Array(CACHE_SLOTS).fill(-1);
const cachedDigits: string[] = new Array(CACHE_SLOTS).fill("");

/**
 * Nine digits of base 36, so that the texts sort like the numbers.
 * @throws RangeError unless `value` is an integer from 0 to 36 ** 9 - 1
 */
export function encodeNumber(value: number): string {
  const slot = value % CACHE_SLOTS;
  if (cachedNumbers[slot] === value) return cachedDigits[slot] as string;
  if (!Number.isInteger(value) || value < 0 || value >= NUMBER_LIMIT) {
    throw new RangeError(`a key cannot hold the number ${value}`);
  }
  const digits = value.toString(36).padStart(DIGITS, "0");
  cachedNumbers[slot] = value;
  cachedDigits[slot] = digits;
  return digits;
}

/** The number that `encodeNumber` encoded. */
export const decodeNumber = (part: string): number => Number.parseInt(part, 36);

/**
 * Encodes any string as a part of a key of at most 200 bytes; different strings give different parts. The result is the percent-encoded
 * text or, where that is longer, its beginning and a SHA-256 digest. Only texts of visible ASCII keep their order.
 */
export function encodeText(value: string): string {
  if (PLAIN.test(value)) return value;
  const encoded = value.replace(SPECIAL, percent);
  if (encoded.length <= MAX_TEXT_BYTES) return encoded;
  // `%~` is not a valid percent code, so that no short text has the same encoding.
  return `${encoded.slice(0, READABLE_BYTES)}%~${digest(value)}`;
}

/** Longest result of `encodeShortText`, so that two results of `encodeText` fit beside it. */
const MAX_SHORT_TEXT_BYTES = 100;

/** Encodes any string as a part of a key of at most 100 bytes; different strings give different parts. */
export function encodeShortText(value: string): string {
  const encoded = encodeText(value);
  // No result of `encodeText` begins with `%~`.
  return encoded.length <= MAX_SHORT_TEXT_BYTES ? encoded : `%~${digest(value)}`;
}

const digest = (value: string): string => createHash("sha256").update(value, "utf16le").digest("base64url");

/** Percent-encodes one character in UTF-8. A lone surrogate has no UTF-8, and keeps its code unit as `%u`, which is no valid code. */
function percent(character: string): string {
  const unit = character.charCodeAt(0);
  if (character.length === 1 && unit >= 0xd800 && unit <= 0xdfff) return `%u${unit.toString(16)}`;
  let out = "";
  for (const byte of Buffer.from(character, "utf8")) out += `%${byte.toString(16).padStart(2, "0")}`;
  return out;
}

/** The exclusive end of the keys that begin with `prefix`: DEL sorts after all visible ASCII. */
export const prefixEnd = (prefix: string): string => `${prefix}\x7f`;

/** The keys of a range: `low` inclusive, `high` exclusive. `!` is the first visible character: no key lies between a key and the key plus `!`. */
export function keyBounds({ prefix, after, before }: Pick<Range, "prefix" | "after" | "before">): {
  low: string;
  high: string;
} {
  const end = prefixEnd(prefix);
  return {
    low: after !== undefined && after >= prefix ? `${after}!` : prefix,
    high: before !== undefined && before < end ? before : end,
  };
}

/** @throws TypeError unless it is 1 to 512 characters of visible ASCII */
export function checkKey(key: string): void {
  if (key.length > MAX_KEY_BYTES || !KEY.test(key))
    throw new TypeError(`not a key of the store: ${JSON.stringify(key.slice(0, 80))}`);
}

/** A digest of a JSON value, the same for equal ones. */
export const digestOf = (value: unknown): string =>
  createHash("sha256").update(canonicalJson(value)).digest("base64url");

// Checks of arguments that all engines make first: these are mistakes of the caller, not failures of the store.

/** Rows that a scan may skip. Only pages by number skip rows, and each costs as much as a row that is read. */
export const MAX_SKIPPED_ROWS = 100_000;

/** Control characters that JSON text never contains. Engines use them as separators, and PostgreSQL refuses NUL. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern looks for control characters
const CONTROL = /[\0\x1e\x1f]/;

/** @throws TypeError for invalid keys, and values that are not JSON text */
export function checkCommit(commit: Commit): void {
  for (const [key, value] of commit.put ?? []) {
    checkKey(key);
    if (typeof value !== "string" || CONTROL.test(value)) throw new TypeError(`the value of ${key} is not JSON text`);
  }
  for (const [key, delta] of commit.add ?? []) {
    checkKey(key);
    if (commit.put?.some(([other]) => other === key)) throw new TypeError(`${key} is put and added to in one commit`);
    if (!Number.isSafeInteger(delta)) throw new TypeError(`${key} cannot count by ${delta}`);
  }
  for (const key of commit.delete ?? []) checkKey(key);
  // An empty prefix would delete everything, which is surely a mistake.
  for (const prefix of commit.clear ?? []) checkKey(prefix);
  for (const [key] of commit.expect ?? []) checkKey(key);
}

/** @throws TypeError for an invalid prefix, and numbers that are out of bounds */
export function checkRange({ prefix, limit, skip = 0 }: Range): void {
  checkKey(prefix);
  if (!Number.isSafeInteger(limit) || limit < 0) throw new TypeError(`limit must be a number of rows, not ${limit}`);
  if (!Number.isSafeInteger(skip) || skip < 0 || skip > MAX_SKIPPED_ROWS) {
    throw new TypeError(`skip must be from 0 to ${MAX_SKIPPED_ROWS}, not ${skip}`);
  }
}

/** @throws TypeError for invalid keys, and a number that is out of bounds */
export function checkTail(tail: Tail): void {
  checkRange(tail);
  if (tail.limit === 0) throw new TypeError("limit of a tail must be at least 1");
  checkKey(tail.otherKey);
}

/** @throws Error when the row `key` is not a counter, or the sum is too large */
export function addToCounter(key: string, value: string, delta: number): string {
  const sum = Number(value) + delta;
  if (!Number.isSafeInteger(sum)) throw new Error(`${key} is not a counter, or its sum is too large for a number`);
  return String(sum);
}

export const CONVERSATION_SEQUENCE = "s/conversation";

/** Prefix of the rows of all conversations. */
export const CONVERSATIONS = "c/";
/** Where all rows are that go with a conversation: its own, its ids, and those by which users and resources list it. */
export const CONVERSATION_SPACES = [CONVERSATIONS, "id/", "iu/", "u/", "r/"] as const;

export const OWN_CONVERSATION_IDS = "iu/";
/** The key of a conversation's id, in the shared space or in that of a user. */
export const conversationIdKey = (memory: string, id: string, owner?: string): string =>
  owner === undefined
    ? `id/${encodeText(memory)}/${encodeText(id)}`
    : `iu/${encodeText(memory)}/${encodeText(id)}/${encodeShortText(owner)}`;
export const conversationIdKeys = (memory: string, id: string): IdKeys => ({
  of: (owner) => conversationIdKey(memory, id, owner),
  ofUsers: () => `iu/${encodeText(memory)}/${encodeText(id)}/`,
});
/** Prefixes of the ids of all conversations of a memory. */
export const conversationIds = (memory: string) => [`id/${encodeText(memory)}/`, `iu/${encodeText(memory)}/`] as const;

/** Prefix of all rows of one conversation. */
export const conversationRows = (conversation: number) => `c/${encodeNumber(conversation)}/`;
export const conversationKey = (conversation: number) => `c/${encodeNumber(conversation)}/n`;
/** The conversation whose row has that key; null for other rows. */
export const conversationOfKey = (key: string): number | null =>
  key.length === "c/#########/n".length && key.startsWith("c/") && key.endsWith("/n")
    ? decodeNumber(key.slice(2, 11))
    : null;
export const messageRows = (conversation: number) => `c/${encodeNumber(conversation)}/m/`;
/** The position of a message in its conversation: milliseconds since 1970, then its rising number. */
export const messagePosition = (time: number, sequence: number) => `${encodeNumber(time)}/${encodeNumber(sequence)}`;
export const messageKey = (conversation: number, position: string) => `c/${encodeNumber(conversation)}/m/${position}`;
export const positionFromKey = (messageKey: string) => messageKey.slice("c/#########/m/".length);
export const messageIdKey = (conversation: number, id: string) => `c/${encodeNumber(conversation)}/i/${encodeText(id)}`;
export const TURN_CLAIMS = "ct/";
export const turnClaimKey = (memory: string, conversation: string, user: string): string =>
  `ct/${encodeText(memory)}/${encodeText(conversation)}/${encodeShortText(user)}`;
export const TURN_INTERRUPTS = "cs/";
export const turnInterruptKey = (turnClaimKey: string): string =>
  TURN_INTERRUPTS + turnClaimKey.slice(TURN_CLAIMS.length);
export const UNFINISHED_COPIES = "cc/";
export const unfinishedCopyKey = (conversation: number) => `cc/${encodeNumber(conversation)}`;
export const conversationSummaryKey = (conversation: number) => `c/${encodeNumber(conversation)}/s`;
export const conversationWorkingMemoryKey = (conversation: number) => `c/${encodeNumber(conversation)}/w`;
export const userWorkingMemoryKey = (memory: string, user: string) => `w/${encodeText(memory)}/${encodeText(user)}`;

export const STORED_BYTES = "b/";
export const storedBytesKey = (user: string) => STORED_BYTES + encodeText(user);
/** The counter of the bytes of something, and the prefixes of its rows. */
export function countedRows(owned: OwnedRows, userId: string): { counter: string; prefixes: readonly string[] } {
  if ("workflowId" in owned) {
    const rows = executionRows(owned.number);
    return { counter: `${rows}b`, prefixes: [rows, openExecutionKey(owned.number)] };
  }
  const { memory, number } = owned;
  if (number !== undefined) return { counter: `${conversationRows(number)}b`, prefixes: [conversationRows(number)] };
  const key = userWorkingMemoryKey(memory, userId);
  return { counter: `${key}/b`, prefixes: [key] };
}

/** Prefix of the index rows of a user, of a resource. */
export const userIndex = (memory: string, user: string) => `u/${encodeText(memory)}/${encodeText(user)}/`;
export const resourceIndex = (memory: string, resource: string) => `r/${encodeText(memory)}/${encodeText(resource)}/`;
/** The rest of a row of either index. */
export const indexEntry = (updatedAt: number, conversation: number) =>
  `${encodeNumber(updatedAt)}/${encodeNumber(conversation)}`;
/** The conversation of a row of either index. */
export const indexedConversation = (key: string) => decodeNumber(key.slice(-9));
/** When it last changed, by a row of either index. */
export const indexedTime = (key: string) => decodeNumber(key.slice(-19, -10));

export const userTotal = (memory: string, user: string) => `n/${encodeText(memory)}/u/${encodeText(user)}`;
export const resourceTotals = (memory: string) => `n/${encodeText(memory)}/r/`;
export const resourceTotal = (memory: string, resource: string) => `n/${encodeText(memory)}/r/${encodeText(resource)}`;

/** The index whose rows a resource's total counts. */
export function countedIndex(resourceTotal: string): string {
  const [, memory, , resource] = resourceTotal.split("/");
  return `r/${memory}/${resource}/`;
}

/** Prefix of the entries of a plugin's namespace. */
export const keyvRows = (namespace: string) => `kv/${encodeText(namespace)}/`;
export const keyvKey = (namespace: string, key: string) => `kv/${encodeText(namespace)}/${encodeText(key)}`;
export const KEYV_ENDS = "kx/";
/** Entries that expire before `time`, in milliseconds since 1970, sort before this. */
export const keyvEndsBefore = (time: number) => `kx/${encodeNumber(time)}`;
export const keyvEnd = (expires: number, namespace: string, key: string) =>
  `kx/${encodeNumber(expires)}/${encodeText(namespace)}/${encodeText(key)}`;

export const EXECUTION_SEQUENCE = "s/execution";
/** Prefix of the rows of all executions but those of running ones. */
export const EXECUTIONS = "x/";
/** Prefix of all rows of one execution. */
export const executionRows = (execution: number) => `x/${encodeNumber(execution)}/`;
export const executionKey = (execution: number) => `x/${encodeNumber(execution)}/r`;
export const journalRows = (execution: number) => `x/${encodeNumber(execution)}/j/`;
export const journalKey = (execution: number, row: number) => `x/${encodeNumber(execution)}/j/${encodeNumber(row)}`;
export const OPEN_EXECUTIONS = "xo/";
export const openExecutionKey = (execution: number) => `xo/${encodeNumber(execution)}`;
/** Prefix of the running runs that are found by a conversation. Their keys end as `executionEntry`. */
export const conversationRuns = (agent: string, user: string, conversation: string): string =>
  `xr/${encodeShortText(agent)}/${encodeShortText(user)}/${encodeText(conversation)}/`;
export const OWN_EXECUTION_NAMES = "xi/";
/** The key of an execution's id that a client chose, in the shared space or in that of a user. */
export const executionNameKey = (id: string, owner?: string): string =>
  owner === undefined ? `xn/${encodeText(id)}` : `xi/${encodeText(id)}/${encodeShortText(owner)}`;
export const executionNameKeys = (id: string): IdKeys => ({
  of: (owner) => executionNameKey(id, owner),
  ofUsers: () => `xi/${encodeText(id)}/`,
});
export const definitionKey = (hash: string) => `xd/${hash}`;
export const PROCESSES = "xp/";
export const processKey = (process: string) => `xp/${encodeText(process)}`;
/** Names of processes need no decoding. */
export const processOfKey = (key: string) => key.slice(PROCESSES.length);
export const STOP_REQUESTS = "xc/";
export const stopRequestKey = (execution: number) => `xc/${encodeNumber(execution)}`;
export const resumeRequestKey = (execution: number, step: string) =>
  `xc/${encodeNumber(execution)}/${encodeShortText(step)}`;
/** The execution that a request of either kind is about. */
export const requestedExecution = (key: string) => decodeNumber(key.slice("xc/".length, "xc/#########".length));

/** Prefix of the executions of a status that are not running: all, or those of a workflow, of a user, or of both. */
export function executionIndex(status: string, workflow?: string, user?: string): string {
  if (user === undefined) return workflow === undefined ? `xs/${status}/` : `xw/${encodeText(workflow)}/${status}/`;
  return workflow === undefined
    ? `xu/${encodeText(user)}/${status}/`
    : `xv/${encodeText(user)}/${encodeText(workflow)}/${status}/`;
}
/** The rest of a row of any of these; its first part alone sorts before all rows of that time. */
export const executionEntry = (createdAt: number, execution: number) =>
  `${encodeNumber(createdAt)}/${encodeNumber(execution)}`;
/** That rest of a row, and its execution. The latter works for rows of open executions too. */
export const indexedEntry = (key: string) => key.slice(-"#########/#########".length);
export const indexedExecution = (key: string) => decodeNumber(key.slice(-9));
export const WORKFLOW_INDEXES = "xw/";
/** Prefix of a workflow's index rows of all statuses. */
export const workflowIndex = (workflow: string) => `xw/${encodeText(workflow)}/`;

export const SEGMENTS = "th/";
export const segmentKey = (segment: string) => `th/${segment}`;
export const segmentFromKey = (segmentKey: string) => segmentKey.slice(SEGMENTS.length);
/** Segments that were sealed before `time`, in milliseconds since 1970, sort before this. */
export const segmentsFrom = (time: number) => `th/${encodeNumber(time)}`;
export const segmentDataKey = (segment: string) => `td/${segment}`;
/** Prefix of the segments with spans that began in a second. */
export const secondRows = (second: number) => `tl/${encodeNumber(second)}/`;
export const secondKey = (second: number, segment: string) => secondRows(second) + segment;
export const segmentFromSecondKey = (secondKey: string) => secondKey.slice("tl/#########/".length);
/** Prefix of the segments of a trace whose id came from a caller. */
export const foreignRows = (traceId: string) => `tf/${traceId}/`;
export const foreignKey = (traceId: string, segment: string) => `tf/${traceId}/${segment}`;
export const segmentFromForeignKey = (foreignKey: string) => foreignKey.slice("tf/".length + 32 + 1);
export const TRACE_COUNTERS = { traces: "n/t/traces", spans: "n/t/spans", size: "n/t/size" } as const;
