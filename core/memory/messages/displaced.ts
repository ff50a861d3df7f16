/** Which stored messages the commit of a turn removes. */
import { messageKey, messageRows, positionFromKey } from "../../storage/keys.ts";
import type { Domain } from "../domain.ts";
import type { TurnPlace } from "../memory.ts";
import { idOf, roleHead } from "../records/message.ts";

const ROWS_PER_READ = 200;
const USER = roleHead("user");

/**
 * Positions by id: the branch that the client has left, and other answers to the same message, which a repeated request has stored
 * meanwhile. Null: the turn yields to such an answer, and is not stored.
 *
 * @param known positions of messages by id, of those that the turn writes and of the one that it answers
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
  let after = messageKey(number, position);
  for (;;) {
    const rows = await store.scan({ prefix: messageRows(number), after, limit: ROWS_PER_READ });
    for (const { key, value } of rows) yield [positionFromKey(key), value] as const;
    if (rows.length < ROWS_PER_READ) return;
    after = rows.at(-1)!.key;
  }
}
