/** Checks the access settings of the manifest at boot: errors in patterns, and warnings about settings that have no effect or are unsafe. */
import { type ParsedPattern, parsePattern, patternProblem, segmentsOf } from "../http/pattern.ts";
import { fillOpenEnd, hasOpenEnd } from "../http/socket-router.ts";
import type { Path, Problem } from "../lib/problem.ts";
import type { AuthManifest } from "../manifest/manifest.ts";
import { DEFAULT_PUBLIC_ROUTES } from "../plugin/access-lists.ts";
import { CONSOLE_KEY_VARIABLE, isDevelopment } from "./credentials.ts";
import { fitPattern } from "./match-patterns.ts";

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
      else if (matchesNoRoute(text, context)) {
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

const matchesNoRoute = (text: string, { routes }: AccessContext): boolean => matchingRoutes(text, routes).length === 0;

function isAlwaysPublic(text: string, { routes }: AccessContext): boolean {
  const rows = matchingRoutes(text, routes);
  return rows.length > 0 && rows.every((row) => matchesAny(row, DEFAULT_PUBLIC_ROUTES));
}

type Row = AccessContext["routes"][number];

const matchingRoutes = (text: string, routes: readonly Row[]): Row[] => routes.filter((row) => matchesAny(row, [text]));

const matchesAny = (row: Row, patterns: readonly string[]): boolean =>
  patterns.some((text) => {
    const pattern = parsePattern(text);
    return fitPattern(pattern, fillFor(row, pattern)) !== "never";
  });

/** Fills the open end (`**`) of a socket path, which stands for paths of any length, to the length that the pattern matches. */
function fillFor({ method, path }: Row, { segments, minRest }: ParsedPattern): Row {
  if (method !== "WS" || !hasOpenEnd(path)) return { method, path };
  const base = segmentsOf(fillOpenEnd(path, 0)).length;
  return { method, path: fillOpenEnd(path, Math.max(0, segments.length + minRest - base)) };
}
