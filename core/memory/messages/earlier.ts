/** The stored messages of a conversation, in addition to those that a client posts. */
import type { Message } from "../../../generated/types.ts";
import { conversationKey, messageKey, messageRows, positionFromKey } from "../../storage/keys.ts";
import type { Row } from "../../storage/store.ts";
import type { Domain } from "../domain.ts";
import type { Discarded, Earlier, EarlierQuery } from "../memory.ts";
import { newestMessages } from "./pages.ts";
import { summaryBefore } from "./summary.ts";
import { findMessages } from "./write.ts";

interface EarlierPage extends Pick<Earlier, "before" | "discarded" | "last" | "summary"> {
  /** Undefined when it has been deleted. */
  readonly conversation: Row | undefined;
  /** Null when they are too large together. */
  readonly messages: readonly Message[] | null;
}

/**
 * The newest messages before the first one that the client posts again: from there on the client's list replaces them. Stored
 * messages after the last one that it posts again are a branch that it has abandoned.
 */
export async function earlierMessages(
  domain: Domain,
  number: number,
  query: EarlierQuery,
  summarized: boolean,
): Promise<EarlierPage> {
  const { limit, most, posted = [], complete = false } = query;
  const known = [...(await findMessages(domain, number, posted))].sort(([, left], [, right]) =>
    left < right ? -1 : 1,
  );
  const before = known[0]?.[1] ?? (complete ? NOWHERE : undefined);
  const [last, end] = known.at(-1) ?? [];
  const [page, discarded, summary] = await Promise.all([
    newestBefore(domain, number, { limit, most }, before),
    end === undefined ? null : messagesAfter(domain, number, end),
    summarized ? summaryBefore(domain.store, number, before) : undefined,
  ]);
  return { ...page, before, discarded, last, summary };
}

/** A position before all others. */
const NOWHERE = "";

async function newestBefore(
  domain: Domain,
  number: number,
  { limit, most }: { limit: number; most: number | undefined },
  before: string | undefined,
) {
  if (limit === 0 || before === NOWHERE)
    return { conversation: await domain.store.get(conversationKey(number)), messages: [] };
  return newestMessages(
    domain,
    number,
    before === undefined ? {} : { before: messageKey(number, before) },
    limit,
    most,
  );
}

async function messagesAfter({ store }: Domain, number: number, position: string): Promise<Discarded | null> {
  const range = { prefix: messageRows(number), after: messageKey(number, position), reverse: true, limit: 1 };
  const [newest] = await store.scan(range);
  return newest === undefined ? null : { after: position, until: positionFromKey(newest.key) };
}
