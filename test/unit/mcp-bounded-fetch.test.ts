/** The bound on replies of foreign MCP servers. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { boundedFetch } from "../../core/mcp/connection.ts";

test("boundedFetch: a body of more than 4 MiB ends with an error, also that of a reply which is an error itself", async (t) => {
  const server = createServer((request, response) => {
    response.writeHead(Number(request.url!.slice(1)));
    response.end("x".repeat(5 * 1024 * 1024));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  for (const status of [200, 401, 500]) {
    const reply = await boundedFetch(() => {})(`http://127.0.0.1:${port}/${status}`);
    assert.equal(reply.status, status);
    await assert.rejects(reply.text(), /it sent more than 4 MiB/);
  }
});
