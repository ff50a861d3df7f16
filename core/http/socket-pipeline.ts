/**
 * From a WebSocket handshake to an open socket: check host and origin, authorize, check the query, open. Until then a handshake is handled
 * like any request, with the same time limits, log line and errors (see pipeline.ts).
 */
import { invalid, notFound, unavailable } from "../lib/errors.ts";
import type { Meters, RequestMeter } from "../observability/metrics/meters.ts";
import { type Authorize, Call, type CallSettings } from "./call.ts";
import type { Cors } from "./cors.ts";
import { decodeParameters, parseQuery } from "./decode.ts";
import type { Upgrade, Uploads } from "./exchange.ts";
import type { OpenSockets } from "./open-sockets.ts";
import { foreignHost, foreignPage, type Site } from "./origin.ts";
import { segmentsOf } from "./pattern.ts";
import { type AccessGroup, type ErrorsAt, errorsByPath, type SocketRoute } from "./route.ts";
import { SocketPeer } from "./socket-peer.ts";
import { createSocketRouter, fillOpenEnd, hasOpenEnd, type SocketMatch } from "./socket-router.ts";
import { isProtocolList } from "./subprotocols.ts";

/** Query parameters that carry credentials: handlers do not see them. */
export const CREDENTIAL_PARAMETERS: readonly string[] = Object.freeze(["key", "token", "dev"]);

/** A socket as a path to which the access rules and CORS apply. It has no open end. */
interface SocketPath {
  readonly method: "WS";
  readonly path: string;
  readonly group: AccessGroup;
}

interface SocketSettings<S> extends CallSettings<S> {
  requestId(given: string): string;
  open: OpenSockets;
  uploads: Uploads;
  /** CORS settings of a path; `defaultCors` are those of paths without a socket. */
  cors(path: SocketPath): Cors;
  defaultCors: Cors;
  site: Site;
  meters: Meters;
  /** Checks the credentials for a path; null for a public one. */
  authorize(path: SocketPath): Authorize<Call<S>> | null;
  authorizeUnknown: Authorize<Call<S>> | null;
}

interface Sockets {
  dispatch(upgrade: Upgrade): void;
  /** Whether a WebSocket is served at this path. */
  has(path: string): boolean;
}

interface PathRules<S> {
  readonly cors: Cors;
  readonly authorize: Authorize<Call<S>> | null;
}

interface Compiled<S> {
  readonly path: string;
  readonly route: SocketRoute<S>;
  readonly names: readonly string[];
  readonly meter: RequestMeter;
  /** Null for a path that ends in `**`: its rules depend on the requested path. */
  readonly rules: PathRules<S> | null;
}

type HandshakeSettings<S> = SocketSettings<S> & { readonly errorsAt: ErrorsAt };

export function compileSockets<S>(routes: readonly SocketRoute<S>[], given: SocketSettings<S>): Sockets {
  const settings = { ...given, errorsAt: errorsByPath(routes) };
  const find = createSocketRouter(routes.map((route) => compile(route, settings)));
  return {
    has: (path) => find(path) !== null,
    dispatch(upgrade) {
      upgrade.requestId = settings.requestId(upgrade.header("x-request-id"));
      const match = find(upgrade.path);
      const handshake = new Handshake(settings, upgrade, match);
      handshake.run();
    },
  };
}

function compile<S>(route: SocketRoute<S>, settings: SocketSettings<S>): Compiled<S> {
  const names = [...route.path.matchAll(/\/:([^/]+)/g)].map((match) => match[1]!);
  const rules = hasOpenEnd(route.path) ? null : compileRules(route, route.path, settings);
  const { operation, path } = route;
  return { path, route, names, meter: settings.meters.ofRoute({ operation, path, method: "WS" }), rules };
}

/**
 * @param path the path for the access rules, without an open end
 * @param asked the path for CORS: the requested one, where `path` stands for many
 */
function compileRules<S>(
  { group }: SocketRoute<S>,
  path: string,
  settings: SocketSettings<S>,
  asked = path,
): PathRules<S> {
  return {
    cors: settings.cors({ method: "WS", path: asked, group }),
    authorize: settings.authorize({ method: "WS", path, group }),
  };
}

class Handshake<S> {
  readonly #settings: HandshakeSettings<S>;
  readonly #upgrade: Upgrade;
  readonly #match: SocketMatch<Compiled<S>> | null;
  /** Read at once: the head can no longer be read when the credentials have been checked. */
  readonly #protocols: string;

  constructor(settings: HandshakeSettings<S>, upgrade: Upgrade, match: SocketMatch<Compiled<S>> | null) {
    this.#settings = settings;
    this.#upgrade = upgrade;
    this.#match = match;
    this.#protocols = upgrade.header("sec-websocket-protocol");
  }

  /** All reading of the head happens before this returns. */
  run(): void {
    const upgrade = this.#upgrade;
    const { cors, authorize } = this.#rules();
    const origin = upgrade.header("origin");
    const headers = cors.constant ?? cors.headers(origin);
    const meter = this.#match?.route.meter ?? this.#settings.meters.ofUnmatched(upgrade.method);
    const errors = this.#match === null ? this.#settings.errorsAt(upgrade.path) : this.#match.route.route.errors;
    const call = new Call(this.#settings, upgrade, meter, headers, errors);
    call.readClient();
    if (this.#settings.tracer) call.traceparent = upgrade.header("traceparent");
    try {
      const { site } = this.#settings;
      const foreign =
        (site.onlyKnownHosts ? foreignHost(upgrade, site) : null) ??
        foreignPage(upgrade, "allowed", cors, site, "open sockets here");
      if (foreign !== null) throw foreign;
      const values = [...(this.#match?.values ?? []), ...(this.#match?.rest ?? [])];
      const allowed = authorize === null ? undefined : authorize(call, upgrade, values);
      if (!(allowed instanceof Promise)) {
        this.#open(call);
        return;
      }
      call.track();
      allowed.then(
        () => this.#open(call),
        (error) => call.fail(error),
      );
    } catch (error) {
      call.fail(error);
    }
  }

  #rules(): PathRules<S> {
    const match = this.#match;
    if (match === null) return { cors: this.#settings.defaultCors, authorize: this.#settings.authorizeUnknown };
    const { route, rules } = match.route;
    const asked = `/${segmentsOf(this.#upgrade.path).filter(Boolean).join("/")}`;
    return rules ?? compileRules(route, fillOpenEnd(route.path, match.rest!.length), this.#settings, asked);
  }

  #open(call: Call<S>): void {
    const upgrade = this.#upgrade;
    try {
      // Reported only now: a caller who is not authorized must not learn which sockets exist.
      if (this.#match === null) throw notFound(`no socket for ${upgrade.path.slice(0, 100)}`);
      if (!isProtocolList(this.#protocols))
        throw invalid("Sec-WebSocket-Protocol: expected different names, separated by commas");
      if (this.#settings.open.closing) throw unavailable("the server is stopping");
      if (call.finished || upgrade.closed) return;
      const { route, names } = this.#match.route;
      const params = decodeParameters(names, this.#match.values);
      const query = withoutCredentials(upgrade.query);
      route.check?.({ query, params, user: call.user, caller: call.caller }, this.#settings.service);
      this.#accept(call, route, params, query);
    } catch (error) {
      call.fail(error);
    }
  }

  #accept(
    call: Call<S>,
    { operation, open }: SocketRoute<S>,
    params: Record<string, string>,
    query: Record<string, string>,
  ): void {
    const { open: all, service, logger, uses, uploads } = this.#settings;
    const { user, caller, expires, requestId, client, trace } = call;
    const known = { operation, user, caller, expires, requestId, client, params, query };
    const info = { ...known, logger, trace, uploads };
    call.upgraded();
    this.#upgrade.accept((socket) => {
      const peer = new SocketPeer(socket, info, (gone) => {
        all.remove(gone);
        uses?.leave();
      });
      all.add(peer);
      uses?.enter();
      peer.start(() => open(peer, service));
      return peer;
    });
  }
}

function withoutCredentials(text: string): Record<string, string> {
  const query = parseQuery(text) as Record<string, string>;
  for (const name of CREDENTIAL_PARAMETERS) delete query[name];
  return query;
}
