/** What is wrong with access as the manifest has it, and what its author should know: said at boot. */

import { type ParsedPattern, parsePattern, patternProblem, segmentsOf } from "../http/pattern.ts";
import { hasOpenEnd, unfold } from "../http/socket-router.ts";
import type { Path, Problem } from "../lib/problem.ts";
import type { AuthManifest } from "../manifest/manifest.ts";
import { DEFAULT_LEGACY_PUBLIC_ROUTES } from "../plugin/access-lists.ts";
import { CONSOLE_KEY, isDevelopment } from "./credentials.ts";
import { fitPattern } from "./match-patterns.ts";

export interface AccessEnvironment {
  readonly routes: readonly { readonly method: string; readonly path: string }[];
  /** Patterns that the provider makes public. */
  readonly provided: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Whether the manifest says something there, and not a default. */
  isWritten(path: Path): boolean;
}

const LISTS = ["publicRoutes", "consoleRoutes", "protectedRoutes"] as const;

/** Keys that one mode looks at, and the other does not. */
const ONLY: readonly (readonly [key: string, mode: AuthManifest["mode"]])[] = [
  ["consoleRoutes", "authNext"],
  ["protectedRoutes", "legacy"],
  ["defaultPrivate", "legacy"],
];

export function accessProblems(auth: AuthManifest, around: AccessEnvironment): Problem[] {
  if (auth.mode === "none") return [];
  return [...modeNotices(auth, around), ...keyNotices(auth, around), ...patternProblems(auth, around)];
}

function modeNotices({ mode, provider }: AuthManifest, { env }: AccessEnvironment): Problem[] {
  const notices: string[] = [];
  if (mode === "legacy") notices.push("legacy is deprecated: use authNext");
  if (provider === undefined)
    notices.push("without auth.provider no token is good: nobody reaches the routes of users with one");
  if (mode === "authNext" && (env[CONSOLE_KEY] ?? "") === "")
    notices.push(`${CONSOLE_KEY} is not set: nobody reaches the routes of the console with a key`);
  if (isDevelopment(env))
    notices.push(
      "NODE_ENV is not production: the header x-service-dev: true opens every route, and ?dev=true every WebSocket, without isolation",
    );
  return notices.map((message) => ({ path: ["auth", "mode"], message, severity: "warning" }));
}

function keyNotices({ mode }: AuthManifest, { isWritten }: AccessEnvironment): Problem[] {
  return ONLY.filter(([key, only]) => only !== mode && isWritten(["auth", key])).map(([key, only]) => ({
    path: ["auth", key],
    message: `counts under ${only} only`,
    severity: "warning",
  }));
}

function patternProblems(auth: AuthManifest, around: AccessEnvironment): Problem[] {
  const problems: Problem[] = [];
  for (const key of LISTS) {
    for (const [index, text] of auth[key].entries()) {
      if (text === "$defaults") continue;
      const path = ["auth", key, index];
      const error = patternProblem(text);
      if (error !== null) problems.push({ path, message: error, severity: "error" });
      else if (isIdle(text, around)) {
        problems.push({ path, message: "no route of this version matches", severity: "warning" });
      } else if (key === "protectedRoutes" && isPublicAnyway(text, around)) {
        problems.push({
          path,
          message: "has no effect: these routes are always public under legacy",
          severity: "warning",
        });
      }
    }
  }
  for (const text of around.provided) {
    const error = patternProblem(text);
    if (error === null) continue;
    const message = `publicRoutes of the provider: ${JSON.stringify(text)}: ${error}`;
    problems.push({ path: ["auth", "provider"], message, severity: "error" });
  }
  return problems;
}

const isIdle = (text: string, { routes }: AccessEnvironment): boolean => matched(text, routes).length === 0;

function isPublicAnyway(text: string, { routes }: AccessEnvironment): boolean {
  const rows = matched(text, routes);
  return rows.length > 0 && rows.every((row) => matchedBy(row, DEFAULT_LEGACY_PUBLIC_ROUTES));
}

type Row = AccessEnvironment["routes"][number];

const matched = (text: string, routes: readonly Row[]): Row[] => routes.filter((row) => matchedBy(row, [text]));

const matchedBy = (row: Row, patterns: readonly string[]): boolean =>
  patterns.some((text) => {
    const pattern = parsePattern(text);
    return fitPattern(pattern, asLongAs(row, pattern)) !== "never";
  });

/** A socket with an open end stands for paths of any length: the one that a pattern may mean. */
function asLongAs({ method, path }: Row, { segments, least }: ParsedPattern): Row {
  if (method !== "WS" || !hasOpenEnd(path)) return { method, path };
  const base = segmentsOf(unfold(path, 0)).length;
  return { method, path: unfold(path, Math.max(0, segments.length + least - base)) };
}
