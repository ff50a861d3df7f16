/** Schemas that a foreign MCP server lists are read in slices: everything else has its turn between them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { McpClientManifest } from "../../core/manifest/manifest.ts";
import { McpClient } from "../../core/mcp/client.ts";
import { silent } from "../support/agents.ts";

const SERVER = `
const tools = Array.from({ length: 12 }, (_, at) => ({ name: "tool" + at, inputSchema: { type: "object", title: String(at) } }));
const replies = {
  initialize: { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "x", version: "1" } },
  "tools/list": { tools },
};
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method } = JSON.parse(line);
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: "2.0", id, result: replies[method] }));
});`;

test("MCP client: while the schemas of a foreign server are read, timers and other requests have their turn", async (t) => {
  let turns = 0;
  const turning = setInterval(() => turns++, 0);
  t.after(() => clearInterval(turning));
  const seen: number[] = [];
  const settings = { command: process.execPath, args: ["-e", SERVER], timeout: 10_000 } as unknown as McpClientManifest;
  const client = new McpClient("big", settings, {
    folder: ".",
    logger: silent,
    changed() {},
    prepare(schema) {
      seen.push(turns);
      // As long as the largest of schemas takes.
      for (const until = performance.now() + 10; performance.now() < until; );
      return { schema, problems: () => null };
    },
  });
  t.after(() => client.close());
  await client.connect();
  assert.equal(client.tools.size, 12);
  assert.ok(new Set(seen).size > 9, `turns before each schema: ${seen.join()}`);
});
