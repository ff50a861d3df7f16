/** Stages: the store of the manifest, and the storage of plugins. */
import { CommitConflict, messageOf, type Problem } from "../../lib/errors.ts";
import type { Meters } from "../../observability/metrics/meters.ts";
import { KeptReplies } from "../../storage/kept-replies.ts";
import { Membership } from "../../storage/membership.ts";
import { createMemoryStore } from "../../storage/memory-store.ts";
import { openStore, parseSqliteUrl } from "../../storage/open-store.ts";
import { isPostgresUrl, parsePostgresUrl } from "../../storage/postgres-settings.ts";
import { isShared, type Store } from "../../storage/store.ts";
import { boundUsers } from "../../storage/stored-bytes.ts";
import type { Parts } from "./parts.ts";
import type { Stage } from "./stage.ts";

// Wraps a store to count and time its commits, without making anybody wait longer.

const measured = (store: Store, meters: Pick<Meters, "commits" | "commitDurations">): Store => ({
  ...store,
  commit(commit) {
    const started = performance.now();
    const committed = store.commit(commit);
    committed.then(
      () => {
        meters.commits.count("ok");
        meters.commitDurations.observe(performance.now() - started);
      },
      (error) => meters.commits.count(error instanceof CommitConflict ? "conflict" : "error"),
    );
    return committed;
  },
});

type StoreNeeds = "manifest" | "loaded" | "registry" | "host" | "meters" | "options";

export const store: Stage<StoreNeeds, "store"> = async (parts, failed) => {
  const { store: opened, problems } = await openOrCheck(parts, failed);
  const { manifest, meters } = parts;
  const { store, bound } = await boundUsers(measured(opened, meters), () =>
    meters.limits.count("server.limits.stored"),
  );
  bound(manifest.server.limits.stored);
  return {
    parts: { store },
    problems,
    adopt: ({ manifest }) => ({ apply: () => bound(manifest.server.limits.stored) }),
    async end() {
      // Closed first, so that what plugins write while they close still finds the store open.
      await parts.host.close();
      await store.close();
    },
  };
};

/** Opens the manifest's store, or one in memory when it must not be opened, so that everything else can be checked. */
async function openOrCheck(
  { manifest: { store: url }, loaded: { folder }, registry, host, options }: Pick<Parts, StoreNeeds>,
  failed: boolean,
): Promise<{ store: Store; problems: Problem[] }> {
  const problems: Problem[] = [];
  try {
    if (isPostgresUrl(url)) parsePostgresUrl(url);
    if (options.store && !failed)
      return { store: await openStore(url, { logger: options.logger, registry, host, folder }), problems };
    if (url.startsWith("sqlite:")) parseSqliteUrl(url, folder);
  } catch (error) {
    problems.push({ path: ["store"], message: messageOf(error).replace(/^store: /, "") });
  }
  return { store: createMemoryStore(), problems };
}

/** The host of one generation's plugins, which are closed when all stages that use them have ended. */
export const pluginHost: Stage<"host", never> = ({ host }) => ({ parts: {}, end: () => host.close() });

/** Starts before everything that leaves open work in the store, and ends after it. */
export const membership: Stage<"store" | "options", "membership"> = ({ store, options: { logger } }) => {
  const membership = isShared(store) ? new Membership(store, { logger }) : null;
  return { parts: { membership }, begin: () => membership?.start(), end: () => membership?.release() };
};

export const replies: Stage<"store" | "membership" | "options", "replies"> = ({ store, membership, options }) => {
  const replies = new KeptReplies(store, membership, options.logger);
  return { parts: { replies }, begin: () => replies.start(), end: () => replies.close() };
};

/** The last of all stages, so that no plugin waits for the store while it is created. */
export const pluginStorage: Stage<"namespaces" | "store", never> = ({ namespaces, store }) => {
  namespaces.connect(store);
  return { parts: {} };
};
