/** The histories of all agents of a service, in memory or in the store. */
import type { Logger } from "pino";
import { isIsolated } from "../../identity/principal.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import type { Membership } from "../../storage/membership.ts";
import { isVolatile, type Store } from "../../storage/store.ts";
import { type AgentHistories, ringHistories } from "./history.ts";
import { StoredHistories } from "./stored.ts";

interface HistoryParts {
  readonly store: Store;
  readonly logger: Logger;
  /** The processes that share the store. */
  readonly membership?: Membership | null;
}

/** A volatile store would lose the history with the process anyway, so a ring buffer in memory is enough. */
export function openHistories(manifest: Manifest, { store, logger, membership = null }: HistoryParts): AgentHistories {
  if (isVolatile(store)) return ringHistories();
  return new StoredHistories(store, {
    // A getter, because a reload may change it: it is read in every round.
    get retention() {
      return manifest.history.retention;
    },
    logger,
    isolated: isIsolated(manifest),
    membership,
  });
}
