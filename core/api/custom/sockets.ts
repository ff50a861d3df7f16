/** Custom sockets: plugins of kind `socket` as rows of the sockets table. */
import type { Logger } from "pino";
import type { Service } from "../../app/service.ts";
import type { Peer, SocketRoute } from "../../http/socket.ts";
import { fillOpenEnd, hasOpenEnd } from "../../http/socket-router.ts";
import type { User } from "../../identity/user.ts";
import { parseExactly } from "../../lib/large-integers.ts";
import type { Problem } from "../../lib/problem.ts";
import { isThenable } from "../../lib/thenable.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import type { SocketPlugin } from "../../plugin/plugin.ts";
import type { Registry } from "../../registry/registry.ts";
import { CustomCall } from "./route-call.ts";
import { requestShape } from "./route-conflicts.ts";
import type { RouteCall } from "./route-services.ts";
import { ownUser } from "./routes.ts";
import type { PluginSocketPeer } from "./socket-peer.ts";

const WS = "WS";

/**
 * The sockets that the manifest's `routes` name. None may have the path shape of another one of `taken`, nor that of a route,
 * whose GET would be found in its place.
 */
export function customSockets(
  manifest: Pick<Manifest, "routes">,
  registry: Registry,
  taken: readonly SocketRoute<Service>[],
  routes: readonly { readonly path: string }[],
): { sockets: SocketRoute<Service>[]; problems: Problem[] } {
  const shapes = new Set([...taken, ...routes].map(({ path }) => requestShape({ method: WS, path })));
  const sockets: SocketRoute<Service>[] = [];
  const problems: Problem[] = [];
  for (const [index, { use }] of manifest.routes.entries()) {
    const plugin = registry.get("socket", use);
    if (plugin === undefined) continue;
    const shape = requestShape({ method: WS, path: plugin.path });
    const problem = pathProblem(plugin.path) ?? (shapes.has(shape) ? "is taken by another socket or route" : null);
    shapes.add(shape);
    if (problem === null) sockets.push(customSocket(use, plugin));
    else problems.push({ path: ["routes", index, "use"], message: `WS ${plugin.path} ${problem}` });
  }
  return { sockets, problems };
}

function pathProblem(path: string): string | null {
  const base = hasOpenEnd(path) ? fillOpenEnd(path, 0) : path;
  return base.includes("*") ? "has a * that means nothing: ** may stand as its last segment only" : null;
}

function customSocket(name: string, plugin: SocketPlugin): SocketRoute<Service> {
  return {
    operation: `custom.${name}`,
    path: plugin.path,
    group: "custom",
    summary: plugin.summary ?? name,
    open(peer, service) {
      const own = new CustomPeer(peer, service);
      return {
        ready: awaited(plugin.open?.(own)),
        message: plugin.message && ((text) => awaited(plugin.message!(own, jsonOrText(text)))),
        close: plugin.close && (() => awaited(plugin.close!(own))),
      };
    },
  };
}

/** Reduces the return value of a plugin's handler to its completion. */
const awaited = (given: unknown): Promise<void> | undefined =>
  isThenable(given) ? (Promise.resolve(given) as Promise<void>) : undefined;

function jsonOrText(text: string): unknown {
  try {
    return parseExactly(text);
  } catch {
    return text;
  }
}

class CustomPeer implements PluginSocketPeer {
  readonly #peer: Peer;
  readonly #service: Service;
  readonly user: User | null;

  constructor(peer: Peer, service: Service) {
    this.#peer = peer;
    this.#service = service;
    this.user = ownUser(peer.user);
  }

  get params(): Readonly<Record<string, string>> {
    return this.#peer.params;
  }

  get query(): Readonly<Record<string, string>> {
    return this.#peer.query;
  }

  get logger(): Logger {
    return this.#peer.logger;
  }

  get signal(): AbortSignal {
    return this.#peer.signal;
  }

  get closed(): boolean {
    return this.#peer.closed;
  }

  get call(): RouteCall {
    const { user, caller, requestId, client, signal, logger } = this.#peer;
    return new CustomCall({ service: this.#service, user, caller, requestId, client, signal, logger, headers: {} });
  }

  send(data: unknown): boolean {
    const text: string | undefined = JSON.stringify(data);
    if (text === undefined) throw new TypeError(`send: ${typeof data} is not JSON`);
    return this.#peer.send(text);
  }

  close(code?: number, reason?: string): void {
    this.#peer.close(code, reason);
  }
}
