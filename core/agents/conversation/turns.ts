/** What lets the turns of each conversation of a service go one after the other, whichever agents take them. */
import type { Logger } from "pino";
import type { Manifest } from "../../manifest/manifest.ts";
import type { Membership } from "../../storage/membership.ts";
import type { Store } from "../../storage/store.ts";
import { TurnClaims } from "./turn-claims.ts";
import { TurnQueue } from "./turn-queue.ts";

interface TurnParts {
  readonly store: Store;
  readonly logger: Logger;
  /** The processes that share the store. */
  readonly membership?: Membership | null;
}

export interface Turns {
  readonly queue: TurnQueue;
  /** Called once before the service listens: frees the conversations of processes that are gone. */
  start(): Promise<void>;
  /** Called after the last turn and before `store.close()`. */
  close(): Promise<void>;
}

export function openTurns(manifest: Manifest, { store, logger, membership = null }: TurnParts): Turns {
  const claims = membership === null ? null : new TurnClaims(store, membership, logger);
  // The limit is read for every wait, since a reload may change it.
  const queue = new TurnQueue(claims, () => manifest.server.limits.request);
  return { queue, start: async () => claims?.start(), close: async () => claims?.close() };
}
