/** The store that a manifest names, for commands that maintain it and do not serve. */
import type { Logger } from "pino";
import type { RunCommandRequest } from "../../generated/types.ts";
import { messageOf } from "../lib/errors.ts";
import { bracketed } from "../lib/host-name.ts";
import { loadManifest } from "../manifest/load.ts";
import { BUILT_IN_PLUGINS } from "../models/builtin.ts";
import { LogText } from "../observability/log-text.ts";
import { createLogger } from "../observability/logger.ts";
import { createHost } from "../registry/host.ts";
import { loadPlugins, pluginFolders, pluginIssue } from "../registry/load.ts";
import { openStore, parseSqliteUrl } from "../storage/open-store.ts";
import type { NamedFile } from "../storage/sqlite-backup.ts";
import { StoreInUse } from "../storage/sqlite-lock.ts";
import type { Store } from "../storage/store.ts";
import { printIssues } from "./inspect.ts";
import type { Invocation } from "./invocation.ts";

export interface NamedStore {
  /** The name of the service. */
  readonly service: string;
  readonly url: string;
  readonly kind: "memory" | "sqlite" | "postgres" | "plugin";
  /** The file of a `sqlite:` store; null for all others. */
  readonly sqlite: NamedFile | null;
  /** Logs warnings and errors to standard error. */
  readonly logger: Logger;
  /** Opens the store as the service would, with its plugin. */
  open(options?: { unfinished?: boolean }): Promise<Store>;
}

const KINDS: readonly (readonly [RegExp, NamedStore["kind"]])[] = [
  [/^memory:$/, "memory"],
  [/^sqlite:/, "sqlite"],
  [/^postgres(ql)?:/, "postgres"],
  [/^/, "plugin"],
];

/**
 * Problems elsewhere in the manifest are ignored: a backup must be possible while a model's key is missing. Problems of the store
 * itself are printed, with exit code 1.
 *
 * @param command what the service is asked for that has the store, if one has
 */
export async function withNamedStore(
  invocation: Invocation,
  work: (named: NamedStore) => Promise<number>,
  command?: RunCommandRequest["command"],
): Promise<number> {
  const { config, plugins } = invocation;
  const loaded = await loadManifest(config, process.env);
  const { validSubset: manifest, folder, issues } = loaded;
  const errors = issues.filter(({ severity }) => severity === "error");
  const ofStore = errors.filter(({ path }) => path === "" || path === "store");
  if (manifest === null || ofStore.length > 0) {
    printIssues(manifest === null ? errors : ofStore);
    return 1;
  }
  const url = manifest.store;
  const kind = KINDS.find(([pattern]) => pattern.test(url))![1];
  // `memory` is the default, perhaps only because the key `store` is misspelt.
  if (kind === "memory") {
    printIssues(errors);
    throw new Error(`${config}: store memory: keeps nothing that a command could find`);
  }
  const text = new LogText();
  text.hide(loaded.secrets);
  const logger = createLogger("warn", { destination: process.stderr, text });
  const host = createHost({ logger, env: process.env });
  const open: NamedStore["open"] = async (options = {}) => {
    const folders = kind === "plugin" ? [...pluginFolders(folder, manifest.plugins), ...plugins] : [];
    const { registry, problems } = await loadPlugins(folders, BUILT_IN_PLUGINS);
    printIssues(problems.map(pluginIssue));
    return openStore(url, { logger, registry, host, folder, ...options });
  };
  try {
    const sqlite = kind === "sqlite" ? parseSqliteUrl(url, folder) : null;
    const named: NamedStore = { service: manifest.name, url, kind, sqlite, logger, open };
    for (let isLast = false; ; isLast = true) {
      try {
        return await work(named);
      } catch (error) {
        if (command === undefined || !(error instanceof StoreInUse)) throw error;
        const { host = manifest.server.host, port = manifest.server.port } = invocation;
        const url = `http://${/^(0\.0\.0\.0|::)$/.test(host) ? "localhost" : bracketed(host)}:${port}`;
        const { askService } = await import("./ask-service.ts");
        if (await askService(url, command, sqlite!, invocation)) return 0;
        // One that has just ended has let go of the store.
        if (isLast) throw new Error(`${messageOf(error)}; no service answers at ${url} (--host, --port)`);
      }
    }
  } finally {
    await host.close();
  }
}
