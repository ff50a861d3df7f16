/** The command `reindex`: rebuilds the indexes of semantic search from the stored messages. */
import { boot } from "../app/boot.ts";
import { counted } from "../lib/counted.ts";
import { createEmbeddings, type Reindexed, reindex } from "../memory/semantic/open.ts";
import { storedMessages } from "../memory/semantic/stored-messages.ts";
import { LogText } from "../observability/log-text.ts";
import { createLogger } from "../observability/logger.ts";
import { isVolatile } from "../storage/store.ts";
import { printIssues } from "./inspect.ts";
import type { Invocation } from "./invocation.ts";

const PROGRESS_INTERVAL_MS = 1_000;

/** Rebuilds the index of every memory with `semantic`. Exit code 1 when the manifest does not boot, or has no such memory. */
export async function reindexAll({ config, plugins }: Invocation): Promise<number> {
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
    if (memories.length === 0) {
      process.stderr.write(`${config}: no memory has semantic search\n`);
      return 1;
    }
    if (isVolatile(store)) {
      process.stderr.write(`${config}: store memory: keeps nothing, so that there is nothing to index\n`);
      return 1;
    }
    const source = { store, models, registry, host };
    const embeddings = createEmbeddings(source);
    for (const [name, { semantic }] of memories) {
      process.stdout.write(`memory ${name}: indexing\n`);
      const progress = createProgress(name);
      const done = await reindex(name, semantic!, { ...source, embeddings }, storedMessages(store, name), progress);
      process.stdout.write(`memory ${name}: done, ${describe(done)}\n`);
    }
    return 0;
  } finally {
    await booted.close();
  }
}

function createProgress(name: string): (done: Reindexed) => void {
  const begun = performance.now();
  let last = begun;
  return (done) => {
    const now = performance.now();
    if (now - last < PROGRESS_INTERVAL_MS) return;
    last = now;
    const rate = Math.round((done.indexed + done.refused) / ((now - begun) / 1_000));
    process.stdout.write(`memory ${name}: ${describe(done)}, ${rate} a second\n`);
  };
}

function describe({ indexed, refused }: Reindexed): string {
  const messages = `${counted(indexed, "messages")} indexed`;
  return refused === 0 ? messages : `${messages}, ${refused} refused by the embedding model`;
}
