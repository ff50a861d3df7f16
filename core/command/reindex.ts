/** The command `reindex`: rebuilds the indexes of semantic search from the stored messages. */
import { existsSync } from "node:fs";
import { boot } from "../app/boot.ts";
import { createEmbeddings, reindex } from "../memory/semantic/open.ts";
import { storedMessages } from "../memory/semantic/stored-messages.ts";
import { LogText } from "../observability/log-text.ts";
import { createLogger } from "../observability/logger.ts";
import { requireUnused } from "../storage/sqlite-owned.ts";
import { reindexMemory } from "../upkeep/store-commands.ts";
import { printIssues } from "./inspect.ts";
import { type Invocation, say } from "./invocation.ts";
import { withNamedStore } from "./named-store.ts";

/** Rebuilds the index of every memory with `semantic`. Exit code 1 when the manifest does not boot, or has no such memory. */
export const reindexAll = (invocation: Invocation): Promise<number> =>
  withNamedStore(
    invocation,
    async ({ sqlite }) => {
      if (sqlite !== null && existsSync(sqlite.file)) await requireUnused(sqlite);
      return reindexHere(invocation);
    },
    "reindex",
  );

async function reindexHere({ config, plugins }: Invocation): Promise<number> {
  const text = new LogText();
  const logger = createLogger("warn", { destination: process.stderr, text });
  const booted = await boot({ config, plugins, env: process.env, logger, text, store: true, semantic: false });
  try {
    const { service, models, registry, host } = booted;
    if (service === null || models === null) {
      printIssues(booted.issues);
      return 1;
    }
    const { manifest, store } = service;
    const memories = Object.entries(manifest.memory).filter(([, { semantic }]) => semantic !== undefined);
    if (memories.length === 0) throw new Error(`${config}: no memory has semantic search`);
    const source = { store, models, registry, host };
    const embeddings = createEmbeddings(source);
    for (const [name, { semantic }] of memories)
      await reindexMemory(name, say, (progress) =>
        reindex(name, semantic!, { ...source, embeddings }, storedMessages(store, name), progress),
      );
    return 0;
  } finally {
    await booted.close();
  }
}
