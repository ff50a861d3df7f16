/** The connections to a foreign MCP server that single users have. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { McpConnection } from "../../core/mcp/connection.ts";
import { UserConnections } from "../../core/mcp/user-calls.ts";
import type { UserCredentials } from "../../core/mcp/user-credentials.ts";
import { until } from "../support/probe.ts";

const SIGNAL = new AbortController().signal;
const credentials = (key: string): UserCredentials => ({ key, token: async () => key, hide: (value) => value });

function connections(maxConnections: number, idle?: number) {
  const opened: string[] = [];
  const closed: string[] = [];
  const pool = new UserConnections(
    async ({ key }) => {
      opened.push(key);
      return { close: async () => void closed.push(key) } as unknown as McpConnection;
    },
    maxConnections,
    idle,
  );
  const use = (key: string, work: () => Promise<unknown> = async () => null) =>
    pool.use(credentials(key), async ({ take }) => {
      await take(SIGNAL);
      return work();
    });
  return { opened, closed, pool, use };
}

test("UserConnections.use: one user's requests share a connection, and the one that was idle longest makes room for another's", async () => {
  const { opened, closed, pool, use } = connections(2);
  await Promise.all([use("ada"), use("ada")]);
  await use("bob");
  await use("ada");
  await use("eve");
  assert.deepEqual([opened, closed, pool.size], [["ada", "bob", "eve"], ["bob"], 2]);
});

test("UserConnections.use: where all connections are in use, a further user is refused and none is closed", async () => {
  const { closed, use } = connections(1);
  let finish = () => {};
  const busy = use("ada", () => new Promise<void>((resolve) => (finish = resolve)));
  await assert.rejects(use("bob"), /^ToolUnavailable: 1 users call it at this moment, which is the limit/);
  finish();
  await busy;
  assert.deepEqual(closed, []);
  await use("bob");
  assert.deepEqual(closed, ["ada"]);
});

test("UserConnections: a connection that nobody uses is closed after a while, one in use is not", async () => {
  const { closed, pool, use } = connections(9, 1);
  let finish = () => {};
  const busy = use("ada", () => new Promise<void>((resolve) => (finish = resolve)));
  await use("bob");
  await until(() => closed.length > 0, "the end of the idle one");
  assert.deepEqual([closed, pool.size], [["bob"], 1]);
  finish();
  await busy;
  await until(() => pool.size === 0, "the end of the other");
});

test("UserConnections.close: all connections end", async () => {
  const { closed, pool, use } = connections(9);
  await use("ada");
  await use("bob");
  await pool.close();
  assert.deepEqual([closed.slice(0, 2).sort(), pool.size], [["ada", "bob"], 0]);
});
