/**
 * Decides which credentials a request needs. The access class of every route is computed at boot; only a class that depends on
 * the value of a path parameter is looked up per request, with the values from the router.
 */
import { matchesSegments, type ParsedPattern, parsePattern, patternProblem, segmentsOf } from "../http/pattern.ts";
import type { AccessGroup } from "../http/route.ts";
import { createRouter } from "../http/router.ts";
import { fillOpenEnd, hasOpenEnd } from "../http/socket-router.ts";
import type { Path, Problem } from "../lib/errors.ts";
import type { AuthManifest } from "../manifest/manifest.ts";
import {
  DEFAULT_CONSOLE_ROUTES,
  DEFAULT_PUBLIC_ROUTES,
  OPERATOR_ROUTES,
  PROTECTED_ROUTES,
} from "../plugin/access-lists.ts";
import { CONSOLE_KEY_VARIABLE, isDevelopment } from "./credentials.ts";
import { belongsToOtherRoute, decodeSegment, fitPattern, type Wanted } from "./match-patterns.ts";

/*
 * Finds the route that an unmatched request means, if its path is another spelling of the route's: with extra slashes, dots, escapes or
 * capitals. Such a request gets the access class of that route, so that no spelling reveals more than the plain one.
 */

interface Row {
  readonly method: string;
  readonly path: string;
}

interface MatchedRoute<R extends Row> {
  readonly route: R;
  /** Raw values of the parameters, in the order of the path. */
  readonly values: readonly string[];
}

/**
 * `/A//b%2Fc/./` -> `a`, `b`, `c`: the segments in lower case with which patterns are compared. A path with `..` has two readings,
 * resolved and literal, because a proxy in front of this service may have read it either way.
 */
function readings(path: string): string[][] {
  const segments = splitDecoded(path).map((segment) => segment.toLowerCase());
  const plain = normalizeSegments(segments);
  return segments.includes("..") ? [plain, segments.filter((segment) => segment !== "")] : [plain];
}

const splitDecoded = (path: string): string[] =>
  path.split("/").flatMap((encodeSegment) => decodeSegment(encodeSegment).split("/"));

function normalizeSegments(segments: readonly string[]): string[] {
  const plain: string[] = [];
  for (const segment of segments) {
    if (segment === "..") plain.pop();
    else if (segment !== "" && segment !== ".") plain.push(segment);
  }
  return plain;
}

/** Escapes a segment so that it stays one segment of a path. */
const encodeSegment = (segment: string): string => segment.replace(/[%/]/g, encodeURIComponent);
const lookupSegment = (segment: string): string => encodeSegment(segment.toLowerCase());

/** Returns a function that finds the route of another spelling of its path; null when there is none. */
function compilePlainPaths<R extends Row>(
  routes: readonly R[],
): (method: string, path: string) => MatchedRoute<R> | null {
  const rows = new Map<string, { method: string; path: string; route: R }>();
  for (const route of routes.filter(({ path }) => !hasOpenEnd(path))) {
    const path = route.path.split("/").map((word) => (word.startsWith(":") ? ":" : lookupSegment(decodeSegment(word))));
    const row = { method: route.method, path: path.join("/"), route };
    // Of two routes that differ only in capitals, the first one stands for both.
    const key = `${row.method} ${row.path}`;
    if (!rows.has(key)) rows.set(key, row);
  }
  const router = createRouter([...rows.values()]);
  const find = (method: string, segments: readonly string[]): MatchedRoute<R> | null => {
    const row = router.find(`/${segments.map(lookupSegment).join("/")}`)?.endpoint.methods.get(method);
    if (row === undefined) return null;
    const words = row.path.slice(1).split("/");
    return { route: row.route, values: segments.filter((_segment, index) => words[index] === ":").map(encodeSegment) };
  };
  // An escaped slash may belong to a value: `/a/b%2Fc/` is read as `/a/b%2Fc` first, and as `/a/b/c` only if that finds no route.
  return (method, path) =>
    find(method, normalizeSegments(path.split("/").map(decodeSegment))) ??
    find(method, normalizeSegments(splitDecoded(path)));
}

/** `operator`: the console's key or the token of a user; either is enough. */
export type AccessClass = "public" | "user" | "console" | "operator";

/** The access class of those requests of a route whose path parameters have these values. */
interface Exception {
  readonly pattern: string;
  readonly wanted: readonly Wanted[];
  readonly access: AccessClass;
}

export interface RouteAccess {
  /** The first one that applies decides. */
  readonly exceptions: readonly Exception[];
  readonly otherwise: AccessClass;
}

interface AccessRoute {
  readonly method: string;
  readonly path: string;
  readonly group: AccessGroup;
}

export interface AccessRules {
  readonly mode: AuthManifest["mode"];
  of(route: AccessRoute): RouteAccess;
  /**
   * The class of a request that matches no route: that of a route if the requested path is another spelling of its path, otherwise that
   * of a custom route.
   */
  ofUnknown(method: string, path: string): AccessClass;
}

interface Rule {
  readonly access: AccessClass;
  readonly patterns: readonly ParsedPattern[];
}

/** In order of precedence: the first pattern that matches decides. */
interface Rules {
  readonly rules: readonly Rule[];
  otherwise(group: AccessGroup): AccessClass;
}

/**
 * Routes that are public in every mode: probes carry no credentials, browsers request the assets of pages without any,
 * and receivers of push notifications have none.
 */
const ALWAYS_PUBLIC = [
  "GET /healthz",
  "GET /readyz",
  "GET /ui/:asset",
  "GET /console/:asset",
  "GET /docs/:asset",
  "GET /.well-known/jwks.json",
];

/** Routes for users, who see what is their own, and for the console, which sees all of it. */
const SHARED_ROUTES = [
  "GET /approvals",
  "POST /approvals/:approvalId",
  "GET /agents/:id/runs",
  "GET /agents/:id/runs/:runId",
  "GET /agents/:id/runs/:runId/stream",
  "POST /agents/:id/runs/:runId/cancel",
];

/** Routes that tokens of users never open, unless a list of the manifest makes them public: they show how the service is built. */
const CONSOLE_ROUTES = ["GET /observability/manifest", "POST /observability/commands"];

/** These show how the service is built. A wide pattern (`*`, `:`) in a list of public routes does not open them; only their own path does. */
const OPENED_BY_NAME: ReadonlySet<string> = new Set([
  "GET /observability/limits",
  "GET /observability/manifest",
  "GET /observability/routes",
  "POST /observability/commands",
]);

/** Routes that are neither in the protected list nor in the public one under `legacy`. */
const LEGACY_UNPROTECTED = [
  "POST /workflows/:id/executions/:executionId/suspend",
  "POST /workflows/:id/executions/:executionId/resume",
];

const PUBLIC: RouteAccess = Object.freeze({ exceptions: Object.freeze([]), otherwise: "public" });
const EVERYTHING_PUBLIC: Omit<AccessRules, "mode"> = { of: () => PUBLIC, ofUnknown: () => "public" };

/**
 * @param routes including sockets, with the method `WS`
 * @param provided patterns that the provider makes public
 */
export function compileAccess(
  auth: AuthManifest,
  routes: readonly AccessRoute[],
  provided: readonly string[] = [],
): AccessRules {
  const { mode } = auth;
  if (mode === "none") return { mode, ...EVERYTHING_PUBLIC };
  const rules = mode === "authNext" ? authNextRules(auth, provided) : legacyRules(auth, provided);
  const of = (route: AccessRoute) => routeAccess(rules, route, routes);
  const findPlain = compilePlainPaths(routes);
  const unknown = inLowerCase(rules);
  return {
    mode,
    of,
    ofUnknown(method, path) {
      const lookedUp = method === "HEAD" ? "GET" : method;
      const match = findPlain(lookedUp, path);
      const [plain, ...others] = readings(path);
      const first =
        match === null ? classOfUnknown(unknown, lookedUp, plain!) : accessClass(of(match.route), match.values);
      // A path is public only if it is public in every reading.
      const classes = [first, ...others.map((segments) => classOfUnknown(unknown, lookedUp, segments))];
      return classes.find((each) => each !== "public") ?? "public";
    },
  };
}

/** Rules of `authNext`: public routes, then console routes; everything else needs the token of a user. */
function authNextRules(auth: AuthManifest, provided: readonly string[]): Rules {
  return {
    rules: [
      rule("public", ALWAYS_PUBLIC, expandDefaults(auth.publicRoutes, DEFAULT_PUBLIC_ROUTES), provided),
      rule("console", CONSOLE_ROUTES, expandDefaults(auth.consoleRoutes, DEFAULT_CONSOLE_ROUTES)),
      rule("operator", SHARED_ROUTES),
    ],
    otherwise: () => "user",
  };
}

/** Rules of `legacy`: a built-in route that is in no list is protected; a custom route only under `defaultPrivate`. */
function legacyRules(auth: AuthManifest, provided: readonly string[]): Rules {
  const written = expandDefaults(auth.publicRoutes, DEFAULT_PUBLIC_ROUTES);
  return {
    rules: [
      rule("public", ALWAYS_PUBLIC, DEFAULT_PUBLIC_ROUTES, written, provided),
      rule("console", CONSOLE_ROUTES),
      rule("operator", OPERATOR_ROUTES, SHARED_ROUTES),
      rule("user", PROTECTED_ROUTES, expandDefaults(auth.protectedRoutes, PROTECTED_ROUTES)),
      rule("public", LEGACY_UNPROTECTED),
    ],
    otherwise: (group) => (group === "custom" && !auth.defaultPrivate ? "public" : "user"),
  };
}

/** Makes a rule. Invalid patterns are left out: they were reported as errors, which prevent the boot. */
const rule = (access: AccessClass, ...lists: (readonly string[])[]): Rule => ({
  access,
  patterns: lists
    .flat()
    .filter((text) => patternProblem(text) === null)
    .map(parsePattern),
});

/** Replaces `$defaults` in a list of the manifest by the default list of that key. */
const expandDefaults = (written: readonly string[], defaults: readonly string[]): readonly string[] =>
  written.flatMap((text) => (text === "$defaults" ? defaults : [text]));

function routeAccess(rules: Rules, route: AccessRoute, routes: readonly AccessRoute[]): RouteAccess {
  const exceptions: Exception[] = [];
  // An HTTP route never answers a WebSocket handshake, and vice versa.
  const rivals = routes.filter(({ method }) => (method === "WS") === (route.method === "WS"));
  const withDefault = (otherwise: AccessClass): RouteAccess => {
    while (exceptions.at(-1)?.access === otherwise) exceptions.pop();
    return { exceptions, otherwise };
  };
  const isOpenedByName = OPENED_BY_NAME.has(`${route.method} ${route.path}`);
  for (const { access, patterns } of rules.rules) {
    for (const pattern of patterns) {
      if (isOpenedByName && access === "public" && (pattern.hasOpenEnd || pattern.segments.includes(null))) continue;
      const fit = fitPattern(pattern, route);
      if (fit === "always") return withDefault(access);
      if (fit === "never" || belongsToOtherRoute(pattern, route, rivals)) continue;
      exceptions.push({ pattern: pattern.text, wanted: fit, access });
    }
  }
  return withDefault(rules.otherwise(route.group));
}

function classOfUnknown(rules: Rules, method: string, segments: readonly string[]): AccessClass {
  for (const { access, patterns } of rules.rules)
    for (const pattern of patterns) if (matchesSegments(pattern, method, segments)) return access;
  return rules.otherwise("custom");
}

/** The rules for comparison with paths in lower case. */
const inLowerCase = ({ rules, otherwise }: Rules): Rules => ({
  rules: rules.map(({ access, patterns }) => ({
    access,
    patterns: patterns.map((pattern) => ({
      ...pattern,
      segments: pattern.segments.map((segment) => segment?.toLowerCase() ?? null),
    })),
  })),
  otherwise,
});

/** @param values raw values of the parameters, in the order of the path */
export function accessClass({ exceptions, otherwise }: RouteAccess, values: readonly string[]): AccessClass {
  for (const { wanted, access } of exceptions)
    if (wanted.every(({ parameter, value }) => decodeSegment(values[parameter]!) === value)) return access;
  return otherwise;
}

// Checks the access settings of the manifest at boot: errors in patterns, and warnings about settings that have no effect or are unsafe.

interface AccessContext {
  readonly routes: readonly { readonly method: string; readonly path: string }[];
  /** Patterns of routes that the provider makes public. */
  readonly provided: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Whether the manifest itself sets this key, rather than a default. */
  isWritten(path: Path): boolean;
}

const LISTS = ["publicRoutes", "consoleRoutes", "protectedRoutes"] as const;

/** Keys that only one of the modes uses. */
const KEYS_OF_ONE_MODE: readonly (readonly [key: string, mode: AuthManifest["mode"]])[] = [
  ["consoleRoutes", "authNext"],
  ["protectedRoutes", "legacy"],
  ["defaultPrivate", "legacy"],
];

export function accessProblems(auth: AuthManifest, context: AccessContext): Problem[] {
  if (auth.mode === "none") return [];
  return [...modeNotices(auth, context), ...keyNotices(auth, context), ...patternProblems(auth, context)];
}

function modeNotices({ mode, provider }: AuthManifest, { env }: AccessContext): Problem[] {
  const notices: string[] = [];
  if (mode === "legacy") notices.push("legacy is deprecated: use authNext");
  if (provider === undefined)
    notices.push("without auth.provider no token is accepted: nobody can reach the routes of users");
  if (mode === "authNext" && (env[CONSOLE_KEY_VARIABLE] ?? "") === "")
    notices.push(`${CONSOLE_KEY_VARIABLE} is not set: nobody can reach the routes of the console with a key`);
  if (isDevelopment(env))
    notices.push(
      "NODE_ENV is not production: the header x-service-dev: true opens every route, and ?dev=true every WebSocket, without isolation",
    );
  return notices.map((message) => ({ path: ["auth", "mode"], message, severity: "warning" }));
}

function keyNotices({ mode }: AuthManifest, { isWritten }: AccessContext): Problem[] {
  return KEYS_OF_ONE_MODE.filter(([key, only]) => only !== mode && isWritten(["auth", key])).map(([key, only]) => ({
    path: ["auth", key],
    message: `has no effect: it is used in mode ${only} only`,
    severity: "warning",
  }));
}

function patternProblems(auth: AuthManifest, context: AccessContext): Problem[] {
  const problems: Problem[] = [];
  for (const key of LISTS) {
    for (const [index, text] of auth[key].entries()) {
      if (text === "$defaults") continue;
      const path = ["auth", key, index];
      const error = patternProblem(text);
      if (error !== null) problems.push({ path, message: error, severity: "error" });
      else if (matchingRoutes(text, context.routes).length === 0) {
        problems.push({ path, message: "no route of this version matches", severity: "warning" });
      } else if (key === "protectedRoutes" && isAlwaysPublic(text, context)) {
        problems.push({
          path,
          message: "has no effect: these routes are always public under legacy",
          severity: "warning",
        });
      }
    }
  }
  for (const text of context.provided) {
    const error = patternProblem(text);
    if (error === null) continue;
    const message = `publicRoutes of the provider: ${JSON.stringify(text)}: ${error}`;
    problems.push({ path: ["auth", "provider"], message, severity: "error" });
  }
  return problems;
}

function isAlwaysPublic(text: string, { routes }: AccessContext): boolean {
  const rows = matchingRoutes(text, routes);
  return rows.length > 0 && rows.every((row) => matchesAny(row, DEFAULT_PUBLIC_ROUTES));
}

type ServedRoute = AccessContext["routes"][number];

const matchingRoutes = (text: string, routes: readonly ServedRoute[]): ServedRoute[] =>
  routes.filter((row) => matchesAny(row, [text]));

const matchesAny = (row: ServedRoute, patterns: readonly string[]): boolean =>
  patterns.some((text) => {
    const pattern = parsePattern(text);
    return fitPattern(pattern, fillFor(row, pattern)) !== "never";
  });

/** Fills the open end (`**`) of a socket path, which stands for paths of any length, to the length that the pattern matches. */
function fillFor({ method, path }: ServedRoute, { segments, minRest }: ParsedPattern): ServedRoute {
  if (method !== "WS" || !hasOpenEnd(path)) return { method, path };
  const base = segmentsOf(fillOpenEnd(path, 0)).length;
  return { method, path: fillOpenEnd(path, Math.max(0, segments.length + minRest - base)) };
}
