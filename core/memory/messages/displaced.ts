/** Finds the stored messages that the commit of a turn removes. */
import { messageKey, messageRows, positionFromKey } from "../../storage/keys.ts";
import { allRows } from "../../storage/ranges.ts";
import type { Domain } from "../domain.ts";
import type { TurnPlace } from "../memory.ts";
import { idOf, roleHead } from "../records/message.ts";

/** A small number, because messages may contain files. */
const ROWS_PER_READ = 32;
const USER = roleHead("user");

/**
 * Positions by id of the branch that the client has abandoned, and of other answers to the same message, which a repeated request has
 * stored meanwhile. Null when the turn yields to such an answer, and is not stored.
 *
 * @param known positions by id of the messages that the turn writes, and of the one that it answers
 */
export async function displacedMessages(
  domain: Domain,
  number: number,
  { answers, answer, discarded, yields }: TurnPlace,
  known: ReadonlyMap<string, string>,
): Promise<ReadonlyMap<string, string> | null> {
  const displaced = new Map<string, string>();
  const written = new Set(known.values());
  const until = discarded?.until ?? "";
  if (discarded !== null) {
    for await (const [position, text] of messagesAfter(domain, number, discarded.after)) {
      if (position > until) break;
      if (!written.has(position)) displaced.set(idOf(text), position);
    }
  }
  const question = answers === undefined ? undefined : known.get(answers);
  if (question === undefined) return displaced;
  for await (const [position, text] of messagesAfter(domain, number, question)) {
    const id = idOf(text);
    if (text.startsWith(USER) || id === answer) break;
    if (yields && position > until) return null;
    displaced.set(id, position);
  }
  return displaced;
}

async function* messagesAfter({ store }: Domain, number: number, position: string) {
  const range = { prefix: messageRows(number), after: messageKey(number, position) };
  for await (const rows of allRows(store, range, ROWS_PER_READ))
    for (const { key, value } of rows) yield [positionFromKey(key), value] as const;
}
