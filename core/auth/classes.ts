/**
 * Which credentials a request needs (contract, "Authentication"). Classes are settled at boot, for every route; one that
 * hangs on the value of a parameter is looked up with each request, on the values that the router has found.
 */

import { matchesSegments, type ParsedPattern, parsePattern, patternProblem } from "../http/pattern.ts";
import type { AccessGroup } from "../http/route.ts";
import type { AuthManifest } from "../manifest/manifest.ts";
import {
  DEFAULT_CONSOLE_ROUTES,
  DEFAULT_LEGACY_PUBLIC_ROUTES,
  OPERATOR_ROUTES,
  PROTECTED_ROUTES,
} from "../plugin/access-lists.ts";
import { belongsToOtherRoute, decodeSegment, fitPattern, type Wanted } from "./match-patterns.ts";
import { compilePlainPaths, readings } from "./plain-path.ts";

/** `operator`: the key of the console, or the token of a user. */
export type AccessClass = "public" | "user" | "console" | "operator";

/** A class of the requests alone whose parameters have these values. */
interface Exception {
  readonly pattern: string;
  readonly wanted: readonly Wanted[];
  readonly access: AccessClass;
}

export interface RouteAccess {
  /** The first that holds counts. */
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
  /** The class of a request that no route answers: that of the route whose path it spells otherwise, else of a custom route. */
  ofUnknown(method: string, path: string): AccessClass;
}

interface Rule {
  readonly access: AccessClass;
  readonly patterns: readonly ParsedPattern[];
}

/** In the order in which they are asked; the first pattern that matches decides. */
interface Rules {
  readonly rules: readonly Rule[];
  otherwise(group: AccessGroup): AccessClass;
}

/** Probes, which carry no credentials, and files of the explorer and the console, which a page asks for without any. */
const ALWAYS_PUBLIC = ["GET /healthz", "GET /readyz", "GET /ui/:asset", "GET /console/:asset"];

/** Under `legacy` these are neither protected nor in the list of public ones. */
const LEGACY_UNPROTECTED = [
  "POST /workflows/:id/executions/:executionId/suspend",
  "POST /workflows/:id/executions/:executionId/resume",
];

const PUBLIC: RouteAccess = Object.freeze({ exceptions: Object.freeze([]), otherwise: "public" });
const EVERYTHING_PUBLIC: Omit<AccessRules, "mode"> = { of: () => PUBLIC, ofUnknown: () => "public" };

/**
 * @param routes sockets among them, with the method `WS`
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
  const of = (route: AccessRoute) => accessOf(rules, route, routes);
  const findPlain = compilePlainPaths(routes);
  const unknown = inLowerCase(rules);
  return {
    mode,
    of,
    ofUnknown(method, path) {
      const lookedUp = method === "HEAD" ? "GET" : method;
      const match = findPlain(lookedUp, path);
      const [plain, ...others] = readings(path);
      const first = match === null ? classOfUnknown(unknown, lookedUp, plain!) : classOf(of(match.route), match.values);
      // Public is what is so whichever way it is read.
      const classes = [first, ...others.map((segments) => classOfUnknown(unknown, lookedUp, segments))];
      return classes.find((each) => each !== "public") ?? "public";
    },
  };
}

/** Contract, "`authNext` evaluation order". */
function authNextRules(auth: AuthManifest, provided: readonly string[]): Rules {
  return {
    rules: [
      rule("public", ALWAYS_PUBLIC, expandDefaults(auth.publicRoutes, DEFAULT_LEGACY_PUBLIC_ROUTES), provided),
      rule("console", expandDefaults(auth.consoleRoutes, DEFAULT_CONSOLE_ROUTES)),
    ],
    otherwise: () => "user",
  };
}

/** Contract, "Legacy `auth`". A route of ours that no list names is not open. */
function legacyRules(auth: AuthManifest, provided: readonly string[]): Rules {
  const written = expandDefaults(auth.publicRoutes, DEFAULT_LEGACY_PUBLIC_ROUTES);
  return {
    rules: [
      rule("public", ALWAYS_PUBLIC, DEFAULT_LEGACY_PUBLIC_ROUTES, written, provided),
      rule("operator", OPERATOR_ROUTES),
      rule("user", PROTECTED_ROUTES, expandDefaults(auth.protectedRoutes, PROTECTED_ROUTES)),
      rule("public", LEGACY_UNPROTECTED),
    ],
    otherwise: (group) => (group === "custom" && !auth.defaultPrivate ? "public" : "user"),
  };
}

/** Those that are none were reported: nothing is served with them. */
const rule = (access: AccessClass, ...lists: (readonly string[])[]): Rule => ({
  access,
  patterns: lists
    .flat()
    .filter((text) => patternProblem(text) === null)
    .map(parsePattern),
});

/** `$defaults` stands for the list that goes with a key of the manifest. */
const expandDefaults = (written: readonly string[], defaults: readonly string[]): readonly string[] =>
  written.flatMap((text) => (text === "$defaults" ? defaults : [text]));

function accessOf(rules: Rules, route: AccessRoute, routes: readonly AccessRoute[]): RouteAccess {
  const exceptions: Exception[] = [];
  // A request and a handshake are never found for each other.
  const rivals = routes.filter(({ method }) => (method === "WS") === (route.method === "WS"));
  const withDefault = (otherwise: AccessClass): RouteAccess => {
    while (exceptions.at(-1)?.access === otherwise) exceptions.pop();
    return { exceptions, otherwise };
  };
  for (const { access, patterns } of rules.rules) {
    for (const pattern of patterns) {
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

/** For paths whose capitals say nothing. */
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
export function classOf({ exceptions, otherwise }: RouteAccess, values: readonly string[]): AccessClass {
  for (const { wanted, access } of exceptions)
    if (wanted.every(({ parameter, value }) => decodeSegment(values[parameter]!) === value)) return access;
  return otherwise;
}
