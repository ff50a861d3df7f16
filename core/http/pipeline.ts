/**
 * The five stages of a request, compiled per route at boot: read the head, authorize, read and validate the body, handle, encode. All
 * reading of the head happens before `Dispatch` returns (see exchange.ts).
 */

import { type OptionNames, optionNames } from "../../generated/option-names.ts";
import { messageOf, ServiceError } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { suggest } from "../manifest/manifest.ts";
import { UNTIMED } from "../observability/metrics/durations.ts";
import type { Meters, RefusingLimit } from "../observability/metrics/meters.ts";
import { type Authorize, Call, type CallSettings, failAccess, failIfAuthorized, NO_WARNINGS } from "./call.ts";
import type { Cors } from "./cors.ts";
import {
  bodyFailure,
  decodeParameters,
  parseBody,
  parseQuery,
  readHeaders,
  requireJson,
  requireValid,
  type Validator,
} from "./decode.ts";
import { errorReply } from "./encode.ts";
import {
  type Charge,
  type Dispatch,
  type Exchange,
  type HeaderList,
  TOO_MUCH_AT_WORK,
  type Uploads,
} from "./exchange.ts";
import { compileKeyTaker, type ReplyKeeper } from "./idempotency.ts";
import { foreignHost, foreignOrigin, type Site } from "./origin.ts";
import { compileOutput } from "./output.ts";
import { withoutTrailingSlash } from "./pattern.ts";
import { type ErrorsAt, errorsByPath, type InputSchemaId, type Route } from "./route.ts";
import { createRouter, type PathEndpoint, type RouteMatch, type Router } from "./router.ts";
import { unknownPathError } from "./unknown-path.ts";

// Warns about keys in `options` of a request that nothing reads: they are ignored, but a misspelt key should not go unnoticed.

/** Bounds of the warning, in keys and in characters of each key: clients choose both. */
const MAX_NAMES = 8;
const MAX_NAME_CHARACTERS = 64;

/**
 * The header `x-warning` for a body that has passed validation; no header when all keys are known.
 *
 * @param schema name of the body's schema
 */
function warnOfOptions(schema: string | undefined, body: unknown): HeaderList {
  const known = schema === undefined ? undefined : optionNames[schema];
  const options = known === undefined ? undefined : (body as { options?: unknown }).options;
  if (known === undefined || options === undefined) return NO_WARNINGS;
  const unknown: string[] = [];
  collect(options, known, "", unknown);
  if (unknown.length === 0) return NO_WARNINGS;
  const more = unknown.length > MAX_NAMES ? ", ..." : "";
  return ["x-warning", `unknown keys in options are ignored: ${unknown.slice(0, MAX_NAMES).join(", ")}${more}`];
}

function collect(options: unknown, known: OptionNames, path: string, unknown: string[]): void {
  if (!isObject(options)) return;
  for (const key in options) {
    if (unknown.length > MAX_NAMES) return;
    const names = Object.hasOwn(known, key) ? known[key] : undefined;
    if (names === undefined) unknown.push(described(key, path, known));
    else if (names !== true) collect(options[key], names, `${path}${key}.`, unknown);
  }
}

function described(key: string, path: string, known: OptionNames): string {
  const name = key.length > MAX_NAME_CHARACTERS ? `${key.slice(0, MAX_NAME_CHARACTERS)}...` : key;
  const near = suggest(name, Object.keys(known));
  // Only visible ASCII: a line break would end the header.
  return `${path}${name}`.replace(/[^\x21-\x7e]/g, "?") + (near === undefined ? "" : ` (did you mean ${near}?)`);
}

interface PipelineSettings<S> extends CallSettings<S> {
  requestId(given: string): string;
  /** The validator of a schema. That of a query also converts its strings to the types of the schema. */
  check(schema: InputSchemaId): Validator;
  /** CORS settings of a route: its own, or those of the service. */
  cors(route: Route<S>): Cors;
  /** CORS settings for requests that match no route. */
  defaultCors: Cors;
  /** Checks the credentials for a route; null for a public one. */
  authorize(route: Route<S>): Authorize<Call<S>> | null;
  /** Checks the credentials of requests that match no route; null when none are needed. */
  authorizeUnknown: Authorize<Call<S>> | null;
  /** Largest body of a route, in bytes. */
  bodyLimit(route: Route<S>): number;
  /** The manifest setting that `bodyLimit` comes from; without it, the one limit of all routes. */
  bodyLimitName?(route: Pick<Route<S>, "bodyClass">): RefusingLimit;
  /** Most bytes of a body that may be outside of strings: they cost most to parse and to validate. */
  valuesLimit: number;
  uploads: Uploads;
  /** Keeps the replies of `idempotent` routes; without it, idempotency keys are ignored. */
  replies?: ReplyKeeper | undefined;
  /** Whether there are trusted proxies, so that the client's address is read from the head. */
  isProxied: boolean;
  meters: Meters;
  site: Site;
  /** Whether a WebSocket is served at this path. */
  isSocket(path: string): boolean;
}

type UnmatchedSettings<S> = PipelineSettings<S> & { readonly errorsAt: ErrorsAt };

interface Compiled {
  method: string;
  path: string;
  isHtml: boolean;
  run(exchange: Exchange, values: string[]): void;
  preflight(exchange: Exchange, allow: string): void;
}

export function compilePipeline<S>(routes: readonly Route<S>[], given: PipelineSettings<S>): Dispatch {
  const settings = { ...given, errorsAt: errorsByPath(routes) };
  const router = createRouter(routes.map((route) => compileRoute(route, settings)));
  const { site } = settings;
  const probes = new Set(routes.flatMap(({ group, path }) => (group === "probe" ? [path, `${path}/`] : [])));
  return (exchange) => {
    exchange.requestId = settings.requestId(exchange.header("x-request-id"));
    const foreign = site.onlyKnownHosts ? foreignHost(exchange, site) : null;
    if (foreign !== null && !probes.has(exchange.path)) return refuse(exchange, settings, foreign);
    const exact = router.find(exchange.path);
    const match = exact ?? findPlain(exchange, router);
    if (match === null) return refuseIfAuthorized(exchange, settings, unknownPathError(exchange, settings.isSocket));
    const { endpoint, values } = match;
    if (exact === null && endpoint.methods.get("GET")?.isHtml) return redirectToPlain(exchange, settings);
    const route = endpoint.methods.get(exchange.method);
    if (route !== undefined) return route.run(exchange, values);
    answerOtherMethod(exchange, endpoint, values, settings);
  };
}

/** A path with one slash at its end is the path without it: clients that join a base address with a path add one. */
function findPlain(exchange: Exchange, router: Router<Compiled>): RouteMatch<Compiled> | null {
  const plain = withoutTrailingSlash(exchange.path);
  const match = plain && router.find(plain);
  if (match) exchange.path = plain!;
  return match || null;
}

/** The links of a page are relative to its own path. The address is relative because a proxy may have removed a base path. */
function redirectToPlain<S>(exchange: Exchange, { meters }: PipelineSettings<S>): void {
  const { path, query } = exchange;
  const location = `..${path.slice(path.lastIndexOf("/"))}${query && `?${query}`}`;
  exchange.reply(308, ["location", location], null);
  meters.ofUnmatched(exchange.method).finished(308, UNTIMED, false);
}

/** HEAD mirrors GET; OPTIONS is answered before authorization; any other method gets 405. */
function answerOtherMethod<S>(
  exchange: Exchange,
  endpoint: PathEndpoint<Compiled>,
  values: string[],
  settings: UnmatchedSettings<S>,
) {
  const { methods, allow } = endpoint;
  if (exchange.method === "HEAD" && methods.has("GET")) return methods.get("GET")!.run(exchange, values);
  if (exchange.method === "OPTIONS") {
    const route = methods.get(exchange.header("access-control-request-method")) ?? methods.values().next().value!;
    settings.meters.ofPreflight.finished(204, UNTIMED, false);
    return route.preflight(exchange, allow);
  }
  const message = `${exchange.method.slice(0, 20)} is not allowed here; allowed: ${allow}`;
  refuseIfAuthorized(exchange, settings, new ServiceError("method_not_allowed", message, { headers: { allow } }));
}

/** Refuses a request that matches no route; with 401 if the caller is not authorized, who must not learn which routes exist. */
function refuseIfAuthorized<S>(exchange: Exchange, settings: UnmatchedSettings<S>, problem: ServiceError) {
  const { authorizeUnknown: authorize, defaultCors, site } = settings;
  const error = foreignOrigin(exchange, exchange, defaultCors, site) ?? problem;
  if (authorize === null) return refuse(exchange, settings, error);
  const cors = defaultCors.constant ?? defaultCors.headers(exchange.header("origin"));
  const meter = settings.meters.ofUnmatched(exchange.method);
  const call = new Call(settings, exchange, meter, cors, settings.errorsAt(exchange.path));
  try {
    failIfAuthorized(call, authorize(call, exchange, []), error);
  } catch (refused) {
    call.fail(refused);
  }
}

function refuse<S>(exchange: Exchange, settings: UnmatchedSettings<S>, error: ServiceError): void {
  const { status, headers, body } = errorReply(error, exchange.requestId, settings.errorsAt(exchange.path));
  const cors = settings.defaultCors.constant ?? settings.defaultCors.headers(exchange.header("origin"));
  exchange.reply(status, [...headers, ...cors], body);
  settings.meters.ofUnmatched(exchange.method).finished(status, UNTIMED, false);
}

function compileRoute<S>(route: Route<S>, settings: PipelineSettings<S>): Compiled {
  const names = [...route.path.matchAll(/\/:([^/]+)/g)].map((match) => match[1]!);
  const checkQuery = route.checks?.query ?? (route.query === undefined ? null : settings.check(route.query));
  const checkBody = route.checks?.body ?? (route.body === undefined ? null : settings.check(route.body));
  const authorize = settings.authorize(route);
  const cors = settings.cors(route);
  const encode = compileOutput(route.output, cors.constant);
  const readsTrace = Boolean(settings.tracer) && route.group === "execution";
  const { uploads, uses, valuesLimit, meters, bodyLimitName = () => "server.limits.body" } = settings;
  const bodyLimit = settings.bodyLimit(route);
  const { bodyOptional = false, readsHeaders = false, refusedPage } = route;
  const replies = route.idempotent === undefined ? undefined : settings.replies;
  const keyTaker = compileKeyTaker(route.idempotent);
  const readsClient = settings.isProxied && route.group === "execution";
  const malformed = "raw" in route.output ? route.output.malformed : undefined;
  const meter = meters.ofRoute(route);

  function handle(call: Call<S>, values: string[], query: string, body: unknown): void {
    try {
      const input = { params: decodeParameters(names, values), query: undefined as unknown, body };
      if (checkQuery !== null) {
        input.query = parseQuery(query);
        requireValid(checkQuery, input.query);
      }
      const result = route.handle(input as never, call);
      if (result instanceof Promise) {
        call.track();
        // Counted until the handler is done, which may be some time after its client has left.
        const { charge } = call;
        uses?.enter();
        charge?.enter();
        result.then(
          (value) => {
            answer(call, value);
            uses?.leave();
            charge?.leave();
          },
          (error) => {
            call.fail(error);
            uses?.leave();
            charge?.leave();
          },
        );
      } else answer(call, result);
    } catch (error) {
      call.fail(error);
    }
  }

  function charged(call: Call<S>, bytes: number): Charge | null {
    const charge = uploads.charge(bytes, call.user);
    if (charge === null) call.fail(TOO_MUCH_AT_WORK);
    else call.charge = charge;
    return charge;
  }

  const begin: typeof handle = !route.holds
    ? handle
    : (call, ...rest) => {
        const charge = charged(call, 0);
        if (charge === null) return;
        handle(call, ...rest);
        charge.leave();
      };

  function answer(call: Call<S>, value: unknown): void {
    try {
      encode(call as Call<unknown>, value);
    } catch (error) {
      call.fail(error);
    }
  }

  function receive(
    call: Call<S>,
    values: string[],
    query: string,
    bytes: Uint8Array,
    keyed: { key: string; path: string } | null,
  ): void {
    let body: unknown;
    const charge = charged(call, bytes.length);
    if (charge === null) return;
    try {
      body = bytes.length === 0 && bodyOptional ? {} : parseBody(bytes, valuesLimit);
      requireValid(checkBody!, body);
      call.warnings = warnOfOptions(route.body, body);
    } catch (error) {
      if (error instanceof ServiceError && error.kind === "too_large") meters.limits.count(bodyLimitName({}));
      if (malformed === undefined) call.fail(error);
      else answer(call, malformed(messageOf(error)));
      charge.leave();
      return;
    }
    if (keyed === null) {
      handle(call, values, query, body);
      charge.leave();
      return;
    }
    call.track();
    const target = `${route.method} ${keyed.path}?${query}`;
    const taken = keyTaker(body)(replies!, call, { key: keyed.key, target, body: bytes }).then(
      (isToRun) => {
        if (isToRun) handle(call, values, query, body);
      },
      (error) => call.fail(error),
    );
    void taken.then(() => charge.leave());
  }

  /** The closures in here stay anonymous: when the unbundled source runs, naming a function costs more than creating it. */
  function read(call: Call<S>, exchange: Exchange, values: string[], type: string): void {
    const { query } = exchange;
    const key = replies === undefined ? "" : exchange.header("idempotency-key");
    const keyed = key === "" ? null : { key, path: exchange.path };
    const allowed = authorize === null ? undefined : authorize(call, exchange, values);
    try {
      requireJson(type, exchange);
    } catch (error) {
      failIfAuthorized(call, allowed, error);
      return;
    }
    exchange.readBody(
      bodyLimit,
      (bytes) => {
        if (!(allowed instanceof Promise)) return receive(call, values, query, bytes, keyed);
        // The body arrives while the credentials are checked; it is not parsed before they are accepted.
        allowed.then(
          () => receive(call, values, query, bytes, keyed),
          (error) => {
            uploads.release(bytes.length);
            call.fail(error);
          },
        );
      },
      (problem) => {
        if (problem === "too_large") meters.limits.count(bodyLimitName(route));
        call.fail(bodyFailure(problem, bodyLimit));
      },
      uploads,
    );
    if (allowed instanceof Promise) allowed.catch((error) => call.fail(error));
    if (!call.finished) call.track();
  }

  return {
    method: route.method,
    path: route.path,
    isHtml: "page" in route.output && route.output.page.startsWith("text/html"),
    preflight(exchange, allow) {
      const requested = exchange.header("access-control-request-headers");
      exchange.reply(204, ["allow", allow, ...cors.preflight(exchange.header("origin"), requested, allow)], null);
    },
    run(exchange, values) {
      const headers = cors.constant ?? cors.headers(exchange.header("origin"));
      const call = new Call(settings, exchange, meter, headers, route.errors);
      const accept = refusedPage === undefined ? "" : exchange.header("accept");
      try {
        const foreign = foreignOrigin(exchange, route, cors, settings.site);
        if (foreign !== null) throw foreign;
        if (readsHeaders !== false) call.headers = readHeaders(exchange, readsHeaders);
        if (readsTrace) call.traceparent = exchange.header("traceparent");
        if (call.traceparent !== "") call.tracestate = exchange.header("tracestate");
        if (readsClient) call.readClient();
        if (checkBody !== null) return read(call, exchange, values, exchange.header("content-type"));
        if (authorize === null) return begin(call, values, exchange.query, undefined);
        const { query } = exchange;
        const allowed = authorize(call, exchange, values);
        if (!(allowed instanceof Promise)) return begin(call, values, query, undefined);
        call.track();
        allowed.then(
          () => begin(call, values, query, undefined),
          (error) => failAccess(call, error, refusedPage, accept),
        );
      } catch (error) {
        failAccess(call, error, refusedPage, accept);
      }
    },
  };
}
