/**
 * The generations of a service. A reload makes the next one while the current one serves. Parts that only one generation uses end after
 * its last work; parts that the process keeps end with the process.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Verifier } from "../auth/provider-port.ts";
import { Uses } from "../lib/uses.ts";
import { hasErrors, type Issue, sortIssues } from "../manifest/issues.ts";
import type { LoadedManifest } from "../manifest/load.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { Models } from "../models/models.ts";
import type { Tracer } from "../observability/tracer.ts";
import { useProxy } from "../outbound/proxy.ts";
import { createHost, type OwnedHost } from "../registry/host.ts";
import type { Registry } from "../registry/registry.ts";
import type { KeptReplies } from "../storage/kept-replies.ts";
import { createNamespaces } from "../storage/keyv-namespace.ts";
import { createService, type Service } from "./service.ts";
import { STAGES } from "./stages/list.ts";
import type { BootOptions, FirstParts } from "./stages/parts.ts";
import { assemble, endAll } from "./stages/stage.ts";

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

export interface Generations {
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

export function createGenerations(options: BootOptions, registry: Registry): Generations {
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
