/** Adds the rows of messages to a commit. */

import { decodeNumber, NUMBER_LIMIT } from "../../storage/encoding.ts";
import { messageIdKey, messageKey, messagePosition } from "../../storage/keys.ts";
import { rowsOf } from "../../storage/large-rows.ts";
import type { Domain } from "../domain.ts";
import type { Snapshot } from "../records/conversation.ts";
import { createMessageId, parseMessageId } from "../records/ids.ts";
import { idOf, messageText, type PreparedMessage } from "../records/message.ts";
import { messagePlace, type Target } from "../records/target.ts";
import type { Draft } from "../semantic/semantic.ts";

/**
 * The positions by id of those messages that are stored already. Every write of messages changes the conversation's revision, so
 * the result is valid as long as the revision that was read before.
 */
export async function findMessages(
  { store }: Pick<Domain, "store">,
  number: number,
  ids: Iterable<string>,
): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const wanted = [...new Set(ids)];
  if (wanted.length === 0) return found;
  const idPositions = wanted.map((id) => {
    const place = parseMessageId(id);
    return place === undefined ? undefined : messagePosition(place.time, place.sequence);
  });
  const keys = wanted.map((id) => messageIdKey(number, id));
  const direct = idPositions.flatMap((position) => (position === undefined ? [] : [messageKey(number, position)]));
  const stored = new Map<string, string>();
  const readDirect = async () => {
    for await (const messages of rowsOf(store, direct))
      for (const { key, value } of messages) stored.set(key, idOf(value));
  };
  const [rows] = await Promise.all([store.getMany(keys), direct.length === 0 ? undefined : readDirect()]);
  for (const [index, id] of wanted.entries()) {
    const named = rows[index];
    const position = idPositions[index];
    if (named !== undefined) found.set(id, JSON.parse(named.value) as string);
    else if (position !== undefined && stored.get(messageKey(number, position)) === id) found.set(id, position);
  }
  return found;
}

/**
 * Adds the messages to a commit: new ones after all others or at the date that the client gave, those in `known` at their old
 * position. Of two messages with the same id the last one counts.
 *
 * @param now milliseconds since 1970; a new message is dated after the newest stored one
 * @returns how many messages have ever been added to the conversation, and the date of the newest one
 */
export function writeMessages(
  domain: Domain,
  draft: Draft,
  target: Target & Pick<Snapshot, "messages" | "latest">,
  messages: readonly PreparedMessage[],
  now: number,
  known: Map<string, string>,
): Pick<Snapshot, "messages" | "latest"> {
  let { messages: sequence, latest } = target;
  const texts = new Map<string, string>();
  const searched = new Map<string, string>();
  for (const message of messages) {
    let position = message.id === undefined ? undefined : known.get(message.id);
    let id = message.id;
    if (position === undefined) {
      // Two messages share a millisecond only where the client dates them: a page is cut at a time.
      const at = message.createdAt ?? Math.min(Math.max(message.saidAt ?? now, latest + 1), NUMBER_LIMIT - 1);
      latest = Math.max(latest, at);
      sequence++;
      position = messagePosition(at, sequence);
      if (id === undefined) id = createMessageId(at, sequence);
      else {
        known.set(id, position);
        draft.put.push([messageIdKey(target.number, id), JSON.stringify(position)]);
      }
    }
    message.named?.(id!);
    texts.set(messageKey(target.number, position), messageText(message, id!, positionTime(position)));
    searched.set(position, message.search);
  }
  for (const row of texts) draft.put.push(row);
  const semantic = domain.semantic.get(target.memory);
  if (semantic !== undefined) {
    for (const [position, text] of searched) semantic.saved(draft, messagePlace(target, position), text);
  }
  return { messages: sequence, latest };
}

/** Adds the removal of messages to a commit. @param positions by id */
export function removeMessages(
  domain: Domain,
  draft: Draft,
  target: Target,
  positions: ReadonlyMap<string, string>,
): void {
  for (const [id, position] of positions)
    draft.delete.push(messageKey(target.number, position), messageIdKey(target.number, id));
  const places = [...positions.values()].map((position) => messagePlace(target, position));
  domain.semantic.get(target.memory)?.deleted(draft, places);
}

const positionTime = (position: string): number => decodeNumber(position.slice(0, position.indexOf("/")));
