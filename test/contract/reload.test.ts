/** `POST /reload`: the manifest is read again and swapped in between two requests, or nothing changes. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { manifestWith, startService, type TestService } from "../support/service.ts";

const rewrite = (service: TestService, manifest: object | string) =>
  writeFile(
    join(service.booted.loaded.folder, "service.yaml"),
    typeof manifest === "string" ? manifest : JSON.stringify({ logs: { level: "debug" }, ...manifest }),
  );

async function reload(service: TestService, manifest: object | string) {
  await rewrite(service, manifest);
  const response = await service.post("/reload", {});
  return { status: response.status, body: (await response.json()) as { data?: unknown; error?: string } };
}

test("POST /reload serves an agent that was added", async (t: TestContext) => {
  const service = await startService(t, manifestWith());
  const second = { ...(manifestWith().agents as { assistant: object }).assistant, name: "Second" };
  const rest = manifestWith();
  const { status, body } = await reload(service, { ...rest, agents: { ...(rest.agents as object), second } });
  assert.deepEqual(body, {
    success: true,
    data: { reloaded: true, changes: [{ path: "agents.second", change: "added" }] },
  });
  assert.equal(status, 200);
  const reply = await service.post("/agents/second/text", { input: "hello" });
  assert.equal(reply.status, 200, await reply.clone().text());
});
