/**
 * From a manifest to a service: read the file, load the plugins, check the references, then the stages. All of them report
 * whatever they find, in one report, and nothing listens until there is nothing to report.
 */
import type { Verifier } from "../auth/provider-port.ts";
import { hasErrors, type Issue, sortIssues } from "../manifest/issues.ts";
import { type LoadedManifest, loadManifest } from "../manifest/load.ts";
import { checkReferences } from "../manifest/references.ts";
import { BUILT_IN_PLUGINS } from "../models/builtin.ts";
import type { Models } from "../models/models.ts";
import type { Tracer } from "../observability/tracer.ts";
import { pluginFolders } from "../registry/discover.ts";
import { createHost, type OwnedHost } from "../registry/host.ts";
import { loadPlugins } from "../registry/load.ts";
import type { Registry } from "../registry/registry.ts";
import { knownPlugins, pluginIssue, replacementIssue } from "../registry/report.ts";
import type { KeptReplies } from "../storage/kept-replies.ts";
import { createNamespaces } from "../storage/keyv-namespace.ts";
import { createService, type Service } from "./service.ts";
import { STAGES } from "./stages/list.ts";
import type { BootOptions } from "./stages/parts.ts";
import { assemble } from "./stages/stage.ts";

export interface Booted {
  loaded: LoadedManifest;
  registry: Registry;
  /** Null when `issues` holds an error. */
  service: Service | null;
  /** Sorted by place. Warnings do not stop the boot. */
  issues: Issue[];
  host: OwnedHost;
  /** Null when the manifest could not be read. */
  models: Models | null;
  /** What checks the tokens of users; null where no provider is named, and without authentication. */
  verifier: Verifier | null;
  /** Null where nothing is traced. */
  tracer: Tracer | null;
  /** The replies to requests with an `Idempotency-Key`; null when the manifest could not be read. */
  replies: KeptReplies | null;
  /** What the service does before it listens. */
  begin(): Promise<void>;
  /** Waits for work that no request waits for, at most some milliseconds. */
  idle(timeout: number): Promise<void>;
  /** Ends what was made, each before what it needs: history, plugins, store. A second call does nothing more. */
  close(): Promise<void>;
}

export async function boot(options: BootOptions): Promise<Booted> {
  const { logger, env } = options;
  const namespaces = createNamespaces();
  const host = createHost({ logger, env, keyv: namespaces.keyv });
  const loaded = await loadManifest(options.config, env);
  options.text?.hide(loaded.secrets);
  const { registry, issues } = await loadAllPlugins(loaded, options.plugins);
  const manifest = loaded.validSubset;
  if (manifest === null) return nothingToServe({ loaded, registry, host, issues: sortIssues(issues) });

  const given = { options, loaded, manifest, registry, host, namespaces };
  const assembly = await assemble(STAGES, given, { issues, issueAt: loaded.issueAt });
  const { models, verifier, tracer, replies, ...parts } = assembly.parts;
  return {
    loaded,
    registry,
    service: hasErrors(assembly.issues) ? null : createService(parts),
    issues: sortIssues(assembly.issues),
    host,
    models,
    verifier,
    tracer,
    replies,
    begin: assembly.begin,
    idle: assembly.idle,
    close: once(assembly.end),
  };
}

/** Every plugin that loads, and what is wrong with the others, with the manifest, and with what it says of either. */
async function loadAllPlugins(
  loaded: LoadedManifest,
  folders: readonly string[],
): Promise<{ registry: Registry; issues: Issue[] }> {
  const ofManifest = pluginFolders(loaded.folder, loaded.validSubset?.plugins);
  const { registry, problems, replaced } = await loadPlugins([...ofManifest, ...folders], BUILT_IN_PLUGINS);
  const issues = [
    ...loaded.issues,
    ...problems.map(pluginIssue),
    ...replaced.map(replacementIssue),
    ...checkReferences(loaded, knownPlugins(registry, problems)),
  ];
  return { registry, issues };
}

/** Of a file that cannot be read as a manifest there is only the report. */
function nothingToServe(found: Pick<Booted, "loaded" | "registry" | "host" | "issues">): Booted {
  return {
    ...found,
    service: null,
    models: null,
    verifier: null,
    tracer: null,
    replies: null,
    begin: async () => {},
    idle: async () => {},
    close: () => found.host.close(),
  };
}

function once(work: () => Promise<void>): () => Promise<void> {
  let done: Promise<void> | undefined;
  return () => {
    done ??= work();
    return done;
  };
}
