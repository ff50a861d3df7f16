/**
 * The generations of a service. A reload makes the next one beside the one that serves; what a generation alone uses ends after its last
 * work, and what the process keeps ends with the process.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Verifier } from "../auth/provider-port.ts";
import { Uses } from "../lib/uses.ts";
import { hasErrors, type Issue, sortIssues } from "../manifest/issues.ts";
import type { LoadedManifest } from "../manifest/load.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { Models } from "../models/models.ts";
import type { Tracer } from "../observability/tracer.ts";
import { createHost, type OwnedHost } from "../registry/host.ts";
import type { Registry } from "../registry/registry.ts";
import type { KeptReplies } from "../storage/kept-replies.ts";
import { createNamespaces } from "../storage/keyv-namespace.ts";
import { createService, type Service } from "./service.ts";
import { STAGES } from "./stages/list.ts";
import type { BootOptions, FirstParts } from "./stages/parts.ts";
import { assemble, endAll } from "./stages/stage.ts";

/**
 * How long nothing must be at work with a generation before it ends: a socket opens a moment after its handshake, and an execution that
 * is taken up again runs a moment after its definition was found.
 */
const SETTLING_MS = 500;

export interface Generation {
  readonly loaded: LoadedManifest;
  /** Null when `issues` holds an error. */
  readonly service: Service | null;
  /** Sorted by place. Warnings do not stop the boot. */
  readonly issues: Issue[];
  readonly host: OwnedHost;
  readonly models: Models;
  /** What checks the tokens of users; null where no provider is named, and without authentication. */
  readonly verifier: Verifier | null;
  /** Null where nothing is traced. */
  readonly tracer: Tracer | null;
  /** The replies to requests with an `Idempotency-Key`. */
  readonly replies: KeptReplies;
  /** Counts what is at work with this generation. */
  readonly uses: Uses;
  /** What is done before it serves. */
  begin(): Promise<void>;
  /** Puts its manifest in force: the swap. */
  adopt(): void;
  /** Ends what it alone uses, as soon as nothing is at work with it. */
  retire(): Promise<void>;
  /** The same at once, for one that has never served. */
  discard(): Promise<void>;
}

export interface Generations {
  /** How many there are that have not ended. */
  readonly size: number;
  /** @param issues what is known of the manifest already */
  next(loaded: LoadedManifest, manifest: Manifest, issues: readonly Issue[]): Promise<Generation>;
  /** Waits for work that no request waits for, at most some milliseconds. */
  idle(timeout: number): Promise<void>;
  /** Ends all generations, and what the process keeps. */
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
  /** Of generations that have not ended: how the stages end that they alone use. */
  const open = new Map<object, Assembly["ends"]>();
  const ending = new Set<Promise<void>>();

  async function next(loaded: LoadedManifest, manifest: Manifest, issues: readonly Issue[]): Promise<Generation> {
    inForce ??= manifest;
    const host = newHost();
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
    // The service may have ended meanwhile.
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

/** Its values are those of the manifest that is in force when they are read. */
const followingManifest = (current: () => Manifest): Manifest =>
  new Proxy({} as Manifest, { get: (_target, key) => Reflect.get(current(), key) });
