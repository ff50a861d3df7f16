/** The commands of docs/protocols/openai.md, run as they stand. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { block, FLAGSHIP, shell } from "./support/documents.ts";
import { startService } from "./support/service.ts";

test("docs/protocols/openai.md: the commands: an order is looked up by a chat completion, a response, and one in the background", async (t) => {
  const service = await startService(t, FLAGSHIP, { env: {} });
  const { choices } = await shell(block("sh", "/v1/chat/completions"), service.url);
  assert.match(choices[0].message.content, /A-1002, a .* is shipped/);
  const { output } = await shell(block("sh", '"include": ["penstock:tool_call"]'), service.url);
  assert.deepEqual(
    [output[0].type, output[0].name, output[0].output.status],
    ["penstock:tool_call", "lookup_order", "shipped"],
  );
  assert.match(output.at(-1).content[0].text, /A-1002/);
  const begun = await shell(block("sh", '"background": true'), service.url);
  assert.equal(begun.status, "in_progress");
  let response = begun;
  while (response.status === "in_progress") response = await (await service.get(`/v1/responses/${begun.id}`)).json();
  assert.equal(response.status, "completed");
});
