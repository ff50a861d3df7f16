/**
 * Every route under lists of access patterns: the class of a request, told by three replies, is compared with what the patterns say about
 * its decoded path.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ROUTES } from "../../core/api/routes/index.ts";
import { CONSOLE_KEY } from "../support/access-credentials.ts";
import { type SecuredOptions, startSecured } from "../support/access-services.ts";
import { CONTRACT, CUSTOM_ROUTES, type Endpoint, type Needs, needsOf } from "../support/access-table.ts";
import { inject } from "../support/inject.ts";

interface Lists {
  readonly publicRoutes?: string[];
  readonly consoleRoutes?: string[];
  readonly protectedRoutes?: string[];
}
interface Case extends SecuredOptions {
  readonly title: string;
  readonly auth: Lists;
  readonly provided: { publicRoutes: string[] };
}

const OPENED = [
  "GET /agents/open",
  "POST /agents/open/*",
  "POST /workflows/:id/executions/open/resume",
  "/workflows/open/**",
  "/custom/*",
  "GET /api/memory/conversations/open",
  "/api/*/conversations/:id/messages",
  "GET /ui/:file/source",
];
const PROVIDED = ["POST /tools/open/execute", "DELETE /api/memory/conversations/:id"];
const STAFF = [
  "POST /agents/staff/**",
  "/agents/staff/*",
  "GET /agents/open",
  "/tools/staff/execute",
  "/custom/**",
  "/workflows/*/executions/staff/*",
  "GET /api/memory/**",
];
const shared = { production: true, provider: "secret", provided: { publicRoutes: PROVIDED } } as const;
const authNext = (title: string, auth: Lists): Case => ({
  ...shared,
  title: `authNext, ${title}`,
  mode: "authNext",
  auth,
});
const legacy = (title: string, auth: Lists, defaultPrivate = false): Case => ({
  ...shared,
  title: `legacy, ${title}`,
  mode: "legacy",
  auth,
  defaultPrivate,
});
const CASES: readonly Case[] = [
  authNext("some opened", { publicRoutes: OPENED }),
  authNext("some opened, more for the console", { publicRoutes: OPENED, consoleRoutes: ["$defaults", ...STAFF] }),
  authNext("some opened, others for the console", { publicRoutes: OPENED, consoleRoutes: STAFF }),
  authNext("what is read is open, all else for the console", { publicRoutes: ["GET /**"], consoleRoutes: ["/**"] }),
  authNext("what says how the service is built is opened by its name", {
    publicRoutes: ["GET /observability/*", "/observability/routes", "GET /observability/manifest", "GET /*/limits"],
  }),
  authNext("nothing for the console", { consoleRoutes: [] }),
  legacy("some opened, some protected", { publicRoutes: OPENED, protectedRoutes: STAFF }),
  legacy("some opened, some protected, the rest private", { publicRoutes: OPENED, protectedRoutes: STAFF }, true),
  legacy("all that is read is open", { publicRoutes: ["GET /**"] }),
  legacy("everything protected that can be", { protectedRoutes: ["/**"] }),
];

/** A pattern as a regular expression over `METHOD /decoded/path`. */
function expression(pattern: string): RegExp {
  const [, method = "\\w+", path] = /^(?:(\w+) )?(\/.*)$/.exec(pattern)!;
  const source = path!
    .replace(/[.]/g, "\\.")
    .replace(/\/\*\*$/, "(?:/.+)?")
    .replace(/\/\*$/, "/.+")
    .replace(/\/(?:\*|:[^/]+)(?=\/|$)/g, "/[^/]+");
  return new RegExp(`^${method} ${source === "(?:/.+)?" ? "/.*" : source}$`);
}

const isIn = (patterns: readonly string[] | undefined, text: string) =>
  (patterns ?? []).some((pattern) => pattern !== "$defaults" && expression(pattern).test(text));

const COMMANDS = ["/observability/commands"];
/** What says how the service is built, and what changes its store, is in no wide pattern. */
const OPENED_BY_NAME = ["/observability/limits", "/observability/manifest", "/observability/routes", ...COMMANDS];
const isName = (pattern: string) => !/[*:]/.test(pattern);

/** @param text method and decoded path */
function expected(endpoint: Endpoint, text: string, of: Case): Exclude<Needs, "custom"> {
  const { auth, provided, mode } = of;
  const usual = needsOf(endpoint, of);
  const isProbe = endpoint.authNext === "public";
  const named = { publicRoutes: auth.publicRoutes?.filter(isName), provided: provided.publicRoutes.filter(isName) };
  const opening = OPENED_BY_NAME.includes(endpoint.path) ? named : { ...auth, provided: provided.publicRoutes };
  const isOpened = isProbe || isIn(opening.publicRoutes, text) || isIn(opening.provided, text);
  // It belongs to no user: no list makes it one's.
  if (["/observability/manifest", ...COMMANDS].includes(endpoint.path) && !isOpened) return "console";
  if (mode === "authNext") {
    if (isOpened) return "public";
    const { consoleRoutes = ["$defaults"] } = auth;
    if (isIn(consoleRoutes, text)) return "console";
    // What both may use is in no list that the manifest replaces.
    return usual === "either" || consoleRoutes.includes("$defaults") ? usual : "user";
  }
  const isListed = endpoint.listed && endpoint.legacy === "public" && endpoint.authNext === "console";
  if (isOpened || isListed) return "public";
  if (usual !== "either" && isIn(auth.protectedRoutes, text)) return "user";
  return usual;
}

const SIGNS: Record<string, Needs> = {
  "true,true,true": "public",
  "false,true,false": "user",
  "false,false,true": "console",
  "false,true,true": "either",
};

/** A slash within a value can be sent as an escape only. */
const SENT: readonly ((value: string) => string)[] = [
  (value) => value.replace(/[/ %\0]/g, escaped),
  (value) => value.replace(/^./, escaped).replace(/[/ \0]/g, escaped),
  (value) => value.replace(/./gs, escaped),
];
const escaped = (character: string) => `%${character.charCodeAt(0).toString(16).padStart(2, "0")}`;
/** Those that patterns name are sent in every way. */
const NAMED = ["open", "staff"];
const VALUES = [...NAMED, "other", "Open", "open/", "open/..", "../open", "open ", "open\0", "%6fpen", ":id", "*"];

interface Request {
  readonly row: Endpoint;
  /** As it is sent. */
  readonly path: string;
  /** Method and path, with the decoded values of its parameters, whose slashes separate nothing. */
  readonly text: string;
}

function requestsOf(row: Endpoint): Request[] {
  const filled = (value: string) => row.path.replace(/:[^/]+/g, () => value);
  if (!row.path.includes(":")) return [{ row, path: row.path, text: `${row.method} ${row.path}` }];
  return VALUES.flatMap((value) => {
    const text = `${row.method} ${filled(value.replaceAll("/", "\u2215"))}`;
    const ways = NAMED.includes(value) ? SENT : SENT.slice(0, 1);
    return ways.map((write) => ({ row, path: filled(write(value)), text }));
  });
}

const SERVED = new Set([...ROUTES, ...CUSTOM_ROUTES].map(({ method, path }) => `${method} ${path}`));
const REQUESTS = [...CONTRACT, ...CUSTOM_ROUTES]
  .filter(({ method, path }) => SERVED.has(`${method} ${path}`))
  .flatMap(requestsOf);
describe("publicRoutes, consoleRoutes and protectedRoutes decide about every route, by its decoded path", () => {
  for (const of of CASES) {
    test(of.title, async (t) => {
      const { service, signer } = await startSecured(t, of);
      const carried: Record<string, string>[] = [
        {},
        { authorization: `Bearer ${signer.sign()}` },
        { "x-console-access-key": CONSOLE_KEY },
      ];
      const found: string[] = [];
      for (const { row, path, text } of REQUESTS) {
        const send = (headers: Record<string, string>) =>
          inject(service.dispatch, { method: row.method, path, headers });
        const statuses = (await Promise.all(carried.map(send))).map(({ status }) => status);
        const seen = SIGNS[String(statuses.map((status) => status !== 401))];
        const right = expected(row, text, of);
        if (seen !== right || Math.max(...statuses) >= 500)
          found.push(`${row.method} ${path}: ${seen} (${statuses}), not ${right}`);
      }
      assert.deepEqual(found, []);
    });
  }
});
