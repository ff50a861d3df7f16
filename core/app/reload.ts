/**
 * Reloads the service: reads the manifest again, checks it, and makes the next generation while the current one serves. Any problem
 * leaves everything unchanged.
 */
import type { Reloaded } from "../../generated/types.ts";
import { isIsolated } from "../identity/principal.ts";
import { invalid, messageOf, ServiceError, unavailable } from "../lib/errors.ts";
import { hideFromErrors, withoutSecrets } from "../lib/secrets.ts";
import { changedAmong, manifestChanges } from "../manifest/changes.ts";
import { formatIssue, hasErrors, type Issue, parsePath, sortIssues } from "../manifest/issues.ts";
import { type LoadedManifest, loadManifest } from "../manifest/load.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { checkReferences } from "../manifest/references.ts";
import { pluginFolders } from "../registry/discover.ts";
import { shortPath } from "../registry/problem.ts";
import type { Registry } from "../registry/registry.ts";
import { knownPlugins } from "../registry/report.ts";
import { changedSources, digestSources } from "../registry/sources.ts";
import type { Generation, Generations } from "./generation.ts";
import { FIXED_SETTINGS } from "./stages/list.ts";
import type { BootOptions } from "./stages/parts.ts";

/** The manifest cannot replace the current one. */
export class ReloadRefused extends ServiceError {
  readonly issues: readonly Issue[];
  /** Whether a restart would apply the manifest, as far as is known. */
  readonly needsRestart: boolean;

  constructor(issues: readonly Issue[], needsRestart = false) {
    super("invalid_input", `not reloaded: ${issues.map(formatIssue).join("; ")}`);
    this.issues = issues;
    this.needsRestart = needsRestart;
  }
}

interface Reloading {
  readonly options: BootOptions;
  readonly registry: Registry;
  /** Digests of the code that is loaded. */
  readonly code: ReadonlyMap<string, string>;
  readonly generations: Generations;
  current(): Generation;
  /** Serves another generation from the next request on. If it throws, nothing has changed. */
  swap(next: Generation): void;
  /** True once the service is stopping. */
  isStopping(): boolean;
}

/** Returns the function that reloads once; calls must not overlap. */
export function createReload({ options, registry, code, generations, current, swap, isStopping }: Reloading) {
  const { config, env, plugins, logger } = options;

  async function build(loaded: LoadedManifest, manifest: Manifest): Promise<Generation> {
    const known = [...loaded.issues, ...checkReferences(loaded, knownPlugins(registry, []))];
    const next = await generations.next(loaded, manifest, known);
    try {
      if (next.service === null) throw new ReloadRefused(next.issues.filter(({ severity }) => severity === "error"));
      await next.begin();
    } catch (error) {
      await next.discard();
      throw error instanceof ServiceError ? error : unavailable(`not reloaded: ${messageOf(error)}`);
    }
    try {
      if (isStopping()) throw unavailable("the server is stopping");
      swap(next);
    } catch (error) {
      await next.discard();
      throw error instanceof ServiceError ? error : invalid(withoutSecrets(`not reloaded: ${messageOf(error)}`));
    }
    return next;
  }

  async function reload(): Promise<Reloaded> {
    if (isStopping()) throw unavailable("the server is stopping");
    const before = current();
    const loaded = await loadManifest(config, env);
    options.text?.hide(loaded.secrets);
    hideFromErrors(loaded.secrets);
    const { manifest, folder } = loaded;
    if (manifest === null || hasErrors(loaded.issues)) throw new ReloadRefused(sortIssues(loaded.issues));
    const codeNow = await digestSources([...pluginFolders(folder, manifest.plugins), ...plugins]);
    const fixed = fixedIssues(before.loaded.manifest!, loaded, changedSources(code, codeNow));
    if (fixed.length > 0) throw new ReloadRefused(fixed, true);
    const changes = manifestChanges(before.loaded.manifest!, manifest);
    if (changes.length > 0) {
      const { issues } = await build(loaded, manifest);
      for (const issue of issues) logger.warn(formatIssue(issue));
      before
        .retire()
        .catch((error) => logger.error({ err: error }, `what was replaced did not end: ${messageOf(error)}`));
    }
    return { reloaded: true, changes };
  }

  return async (): Promise<Reloaded> => {
    try {
      const reloaded = await reload();
      logger.info({ changes: reloaded.changes }, "reloaded");
      return reloaded;
    } catch (error) {
      logger.error({ err: error instanceof ReloadRefused ? undefined : error }, messageOf(error));
      throw error;
    }
  };
}

/** Changes in the new manifest that need a restart. */
function fixedIssues(before: Manifest, { manifest, issueAt }: LoadedManifest, files: readonly string[]): Issue[] {
  const after = manifest!;
  const paths = changedAmong(FIXED_SETTINGS, before, after);
  // Objects in the store have their owner in their key.
  if (isIsolated(before) !== isIsolated(after))
    paths.push(...changedAmong(["auth.mode", "auth.isolation"], before, after));
  return sortIssues([
    ...paths.map((path) => issueAt(parsePath(path) ?? [], "cannot be changed by a reload: restart to apply it")),
    ...files.map((file) => issueAt([], `${shortPath(file)} has changed, and code cannot be loaded again: restart`)),
  ]);
}
