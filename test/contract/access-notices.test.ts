/** What the boot says about access: errors and warnings, with their places. */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { boot } from "../../core/app/boot.ts";
import { createLogger } from "../../core/observability/logger.ts";
import { EXAMPLES } from "../support/plugin-folder.ts";

const TOKEN = "token-of-ada-0123456789";
const PROVIDER = `  provider: { use: static, tokens: { ${TOKEN}: { id: ada } } }\n`;
const PRODUCTION = { NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY: "console-key-0123456789" };

async function issuesOf(t: TestContext, auth: string, env: Record<string, string> = PRODUCTION): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), "penstock-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const config = join(folder, "service.yaml");
  await writeFile(config, `name: Desk\nversion: 1.0.0\nauth:\n${auth}routes: [{ use: hello }]\n`);
  const booted = await boot({ config, plugins: [EXAMPLES], env, logger: createLogger("silent") });
  t.after(() => booted.close());
  const { issues, service } = booted;
  assert.equal(
    service === null,
    issues.some(({ severity }) => severity === "error"),
  );
  return issues.map(({ severity, line, column, path, message }) => `${severity} ${line}:${column} ${path}: ${message}`);
}

test("notices at the start: in production, with a provider and a key, nothing is said of authNext", async (t) => {
  assert.deepEqual(await issuesOf(t, `  mode: authNext\n${PROVIDER}`), []);
});

test("notices at the start: nothing is said where mode is none, whatever else is there", async (t) => {
  assert.deepEqual(await issuesOf(t, `  mode: none\n  protectedRoutes: [/a/**/b]\n`, {}), []);
});

test("notices at the start: what cannot be reached, and the bypass of development, are warnings where mode stands", async (t) => {
  assert.deepEqual(await issuesOf(t, "  mode: authNext\n", {}), [
    "warning 4:3 auth.mode: without auth.provider no token is accepted: nobody can reach the routes of users",
    "warning 4:3 auth.mode: SERVICE_CONSOLE_ACCESS_KEY is not set: nobody can reach the routes of the console with a key",
    "warning 4:3 auth.mode: NODE_ENV is not production: the header x-service-dev: true opens every route, and ?dev=true every WebSocket, without isolation",
  ]);
});

test("notices at the start: legacy is deprecated, and each mode says which keys are the other's", async (t) => {
  const keys = "  consoleRoutes: [/hello]\n  protectedRoutes: [GET /hello]\n  defaultPrivate: true\n";
  assert.deepEqual(await issuesOf(t, `  mode: legacy\n${PROVIDER}${keys}`), [
    "warning 4:3 auth.mode: legacy is deprecated: use authNext",
    "warning 6:3 auth.consoleRoutes: has no effect: it is used in mode authNext only",
  ]);
  assert.deepEqual(await issuesOf(t, `  mode: authNext\n${PROVIDER}${keys}`), [
    "warning 7:3 auth.protectedRoutes: has no effect: it is used in mode legacy only",
    "warning 8:3 auth.defaultPrivate: has no effect: it is used in mode legacy only",
  ]);
});

test("notices at the start: patterns that match nothing are warnings, those that never could are errors", async (t) => {
  const auth = `  mode: authNext\n${PROVIDER}  publicRoutes: [/hello, /helo, WS /wss, WS /ws, "/a/**/b"]\n  consoleRoutes: [$defaults, HEAD /hello, /admin*]\n`;
  assert.deepEqual(await issuesOf(t, auth), [
    "warning 6:26 auth.publicRoutes[1]: no route of this version matches",
    "warning 6:33 auth.publicRoutes[2]: no route of this version matches",
    "error 6:50 auth.publicRoutes[4]: ** is allowed at the end only",
    "error 7:30 auth.consoleRoutes[1]: HEAD goes with GET: write GET",
    "error 7:43 auth.consoleRoutes[2]: * stands for a whole segment: /reports/* and not /reports*",
  ]);
});

test("notices at the start: a pattern of protectedRoutes that is about public routes alone is said to have no effect", async (t) => {
  const auth = `  mode: legacy\n${PROVIDER}  protectedRoutes: [GET /agents/:id, /agents/**]\n`;
  const [, ...rest] = await issuesOf(t, auth);
  assert.deepEqual(rest, [
    "warning 6:21 auth.protectedRoutes[0]: has no effect: these routes are always public under legacy",
  ]);
});

test("notices at the start: what a provider makes public must be patterns too", async (t) => {
  const provider = PROVIDER.replace("use: static", 'use: static, publicRoutes: ["/hello", "hello"]');
  assert.deepEqual(await issuesOf(t, `  mode: authNext\n${provider}`), [
    'error 5:3 auth.provider: publicRoutes of the provider: "hello": must be a path with an optional method before it, such as GET /hello or /reports/*',
  ]);
});
