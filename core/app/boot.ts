/**
 * Boots a service from a manifest: reads the file, loads the plugins, checks the references, then runs the stages. All of them add
 * their problems to one report, and the service listens only if the report has no error.
 */
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Reloaded } from "../../generated/types.ts";
import type { Verifier } from "../auth/provider-port.ts";
import { isIsolated } from "../identity/principal.ts";
import { invalid, messageOf, ServiceError, unavailable } from "../lib/errors.ts";
import { hideFromErrors, withoutSecrets } from "../lib/secrets.ts";
import { Uses } from "../lib/uses.ts";
import { changedAmong, manifestChanges } from "../manifest/changes.ts";
import { type LoadedManifest, loadManifest } from "../manifest/load.ts";
import { formatIssue, hasErrors, type Issue, type Manifest, parsePath, sortIssues } from "../manifest/manifest.ts";
import { checkReferences } from "../manifest/references.ts";
import { BUILT_IN_PLUGINS } from "../models/builtin.ts";
import type { Models } from "../models/models.ts";
import type { Tracer } from "../observability/tracer.ts";
import { useProxy } from "../outbound/proxy.ts";
import { createHost, type OwnedHost } from "../registry/host.ts";
import { knownPlugins, loadPlugins, pluginFolders, pluginIssue, replacementIssue } from "../registry/load.ts";
import { type PluginProblem, shortPath } from "../registry/problem.ts";
import type { Registry } from "../registry/registry.ts";
import { changedSources, digestSources } from "../registry/sources.ts";
import type { KeptReplies } from "../storage/kept-replies.ts";
import { createNamespaces } from "../storage/keyv-namespace.ts";
import { createService, type Service } from "./service.ts";
import { FIXED_SETTINGS, STAGES } from "./stages/list.ts";
import type { BootOptions, FirstParts } from "./stages/parts.ts";
import { assemble, endAll } from "./stages/stage.ts";

/*
 * The generations of a service. A reload makes the next one while the current one serves. Parts that only one generation uses end after
 * its last work; parts that the process keeps end with the process.
 */

/**
 * How long a generation must be idle before it ends: a socket opens a moment after its handshake, and a recovered execution runs a
 * moment after its definition was found.
 */
const SETTLING_MS = 500;

export interface Generation {
  readonly loaded: LoadedManifest;
  /** Null when `issues` contains an error. */
  readonly service: Service | null;
  /** Sorted by place in the manifest. Warnings do not stop the boot. */
  readonly issues: Issue[];
  readonly host: OwnedHost;
  readonly models: Models;
  /** Verifies the tokens of users; null when no auth provider is configured, and without authentication. */
  readonly verifier: Verifier | null;
  /** Null when tracing is off. */
  readonly tracer: Tracer | null;
  /** The replies to requests with an `Idempotency-Key`. */
  readonly replies: KeptReplies;
  /** Counts the work in progress that uses this generation. */
  readonly uses: Uses;
  /** Runs what must be done before it serves. */
  begin(): Promise<void>;
  /** Switches to its manifest, at the swap. */
  adopt(): void;
  /** Ends the parts that only it uses, as soon as it is idle. */
  retire(): Promise<void>;
  /** Like `retire`, but at once, for a generation that has never served. */
  discard(): Promise<void>;
}

interface Generations {
  /** The number of generations that have not ended. */
  readonly size: number;
  /** @param issues known problems of the manifest */
  next(loaded: LoadedManifest, manifest: Manifest, issues: readonly Issue[]): Promise<Generation>;
  /** Waits for background work, at most some milliseconds. */
  idle(timeout: number): Promise<void>;
  /** Ends all generations and the parts that the process keeps. */
  close(): Promise<void>;
}

type Assembly = Awaited<ReturnType<typeof assembleStages>>;

function createGenerations(options: BootOptions, registry: Registry): Generations {
  const { logger, env } = options;
  const namespaces = createNamespaces();
  const newHost = () => createHost({ logger, env, keyv: namespaces.keyv });
  const processHost = newHost();
  let inForce: Manifest | undefined;
  const followed = followingManifest(() => inForce!);
  let first: Assembly | undefined;
  /** For each generation that has not ended: how to end the stages that only it uses. */
  const open = new Map<object, Assembly["ends"]>();
  const ending = new Set<Promise<void>>();

  async function next(loaded: LoadedManifest, manifest: Manifest, issues: readonly Issue[]): Promise<Generation> {
    inForce ??= manifest;
    const host = newHost();
    const wrong = useProxy(manifest.server.proxy, env);
    if (wrong !== null) logger.warn(`${wrong}: calls leave directly`);
    const uses = new Uses();
    const given = { options, loaded, manifest, registry, host, namespaces, uses };
    const lasting = { host: processHost, manifest: followed };
    const assembly = await assembleStages(given, { issues, issueAt: loaded.issueAt }, { kept: first?.kept, lasting });
    first ??= assembly;
    const { models, verifier, tracer, replies, ...parts } = assembly.parts;
    const own = assembly.ends.filter((end) => !end.kept);
    const generation: Generation = {
      loaded,
      service: hasErrors(assembly.issues) ? null : createService(parts),
      issues: sortIssues(assembly.issues),
      host,
      models,
      verifier,
      tracer,
      replies,
      uses,
      begin: assembly.begin,
      adopt() {
        inForce = manifest;
        assembly.adopt();
      },
      async retire() {
        do {
          await uses.whenOver();
          await sleep(SETTLING_MS, undefined, { ref: false });
        } while (uses.count > 0);
        await generation.discard();
      },
      async discard() {
        if (!open.delete(generation)) return;
        const ended = endAll(own);
        ending.add(ended);
        await ended.finally(() => ending.delete(ended));
      },
    };
    // The service may have been closed meanwhile.
    if (closed === undefined) open.set(generation, own);
    else await endAll(own);
    return generation;
  }

  async function close(): Promise<void> {
    const left = [...open.values()].flat();
    open.clear();
    await Promise.allSettled(ending);
    await endAll([...left, ...(first?.ends.filter(({ kept }) => kept) ?? [])]);
    await processHost.close();
  }
  let closed: Promise<void> | undefined;
  return {
    next,
    get size() {
      return open.size;
    },
    idle: async (timeout) => first?.idle(timeout),
    close: () => {
      closed ??= close();
      return closed;
    },
  };
}

const assembleStages = (
  given: Parameters<typeof assemble<FirstParts, typeof STAGES>>[1],
  report: Parameters<typeof assemble>[2],
  before: Parameters<typeof assemble<FirstParts, typeof STAGES>>[3],
) => assemble(STAGES, given, report, before);

/** A manifest whose values are those of the current manifest at the time they are read. */
const followingManifest = (current: () => Manifest): Manifest =>
  new Proxy({} as Manifest, { get: (_target, key) => Reflect.get(current(), key) });

/** The first generation of a service. */
export interface Booted extends Pick<Generation, "loaded" | "service" | "issues" | "host" | "verifier" | "tracer"> {
  registry: Registry;
  /** Digests of the source files of plugins at the time they were loaded. */
  code: ReadonlyMap<string, string>;
  /** Null when the manifest could not be read. */
  models: Models | null;
  /** Null when the manifest could not be read. */
  generations: Generations | null;
  generation: Generation | null;
  /** Runs what the service does before it listens. */
  begin(): Promise<void>;
  /** Waits for background work, at most some milliseconds. */
  idle(timeout: number): Promise<void>;
  /** Ends everything that was made, each part before the parts that it needs: history, plugins, store. May be called again. */
  close(): Promise<void>;
}

export async function boot(options: BootOptions): Promise<Booted> {
  const loaded = await loadManifest(options.config, options.env);
  options.text?.hide(loaded.secrets);
  hideFromErrors(loaded.secrets);
  const folders = [...pluginFolders(loaded.folder, loaded.validSubset?.plugins), ...options.plugins];
  // Computed before loading, so that no later change is missed. A command that does not serve is never reloaded.
  const code = options.store === true ? digestSources(folders) : new Map<string, string>();
  const { registry, issues } = await loadAllPlugins(loaded, folders);
  const manifest = loaded.validSubset;
  if (manifest === null) return nothingToServe(options, { loaded, registry, code, issues: sortIssues(issues) });
  const generations = createGenerations(options, registry);
  const generation = await generations.next(loaded, manifest, issues);
  const { begin } = generation;
  const { idle, close } = generations;
  return { ...generation, registry, code, generations, generation, begin, idle, close };
}

/** Loads every plugin that can be loaded. Reports problems of the others, of the manifest, and of its references to plugins. */
async function loadAllPlugins(
  loaded: LoadedManifest,
  folders: readonly string[],
): Promise<{ registry: Registry; issues: Issue[] }> {
  const { registry, problems, notices, replaced } = await loadPlugins(folders, BUILT_IN_PLUGINS);
  const issues = [
    ...loaded.issues,
    ...problems.map((problem) => folderIssue(loaded, problem) ?? pluginIssue(problem)),
    ...notices.map((notice) => ({ ...pluginIssue(notice), severity: "warning" as const })),
    ...replaced.map(replacementIssue),
    ...checkReferences(loaded, knownPlugins(registry, problems)),
  ];
  return { registry, issues };
}

/** Places the problem of a plugin folder at the line of the manifest that names it. */
function folderIssue({ folder, validSubset, issueAt }: LoadedManifest, { file, cause }: PluginProblem): Issue | null {
  const index = validSubset?.plugins.findIndex((named) => resolve(folder, named) === file) ?? -1;
  return index === -1 ? null : issueAt(["plugins", index], cause);
}

/** The result for a file that cannot be read as a manifest: only its report. */
function nothingToServe(
  { logger, env }: BootOptions,
  found: Pick<Booted, "loaded" | "registry" | "code" | "issues">,
): Booted {
  const host = createHost({ logger, env });
  const nothing = { service: null, models: null, verifier: null, tracer: null, generations: null, generation: null };
  return { ...found, ...nothing, host, begin: async () => {}, idle: async () => {}, close: () => host.close() };
}

/*
 * Reloads the service: reads the manifest again, checks it, and makes the next generation while the current one serves. Any problem
 * leaves everything unchanged.
 */

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
    const codeNow = digestSources([...pluginFolders(folder, manifest.plugins), ...plugins]);
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
