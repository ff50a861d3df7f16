/** An input that has nothing for the model is 400 on every generation endpoint, and the error names what is empty. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";

const SCHEMA = { type: "object" };
const ENDPOINTS = ["text", "stream", "chat", "object", "stream-object"];

const user = (...parts: unknown[]) => ({ role: "user", parts });
const text = (value: string) => ({ type: "text", text: value });
const IMAGE = { type: "file", mediaType: "image/png", url: "data:image/png;base64,iVBORw0KGgo=" };

/** Each with the field that is empty. */
const EMPTY: [input: unknown, field: string][] = [
  ["", "input"],
  [" \n\t", "input"],
  [[], "input"],
  [[user()], "input[0].parts"],
  [[user(text(""))], "input[0].parts"],
  [[user(text(" "), text("\n"))], "input[0].parts"],
  [[{ role: "user", content: "" }], "input[0].content"],
  [[{ role: "user", content: [] }], "input[0].content"],
  [[{ role: "user", content: [text("")] }], "input[0].content"],
  [[user(text("Hi")), { role: "assistant", content: " " }, user(text("?"))], "input[1].content"],
  [[user(text("Hi")), { role: "assistant", parts: [text("Hello")] }, user(text(""))], "input[2].parts"],
  [[user({ type: "data-note", data: 1 })], "input"],
];

for (const endpoint of ENDPOINTS) {
  test(`POST /agents/:id/${endpoint} with an empty input is 400 and names what is empty, without a call of the model`, async (t) => {
    const { service, upstream } = await serveUpstream(t);
    const path = `/agents/assistant/${endpoint}`;
    for (const [input, field] of EMPTY) {
      const reply = await errorOf(service.post(path, { input, schema: SCHEMA }));
      assert.deepEqual(reply, { status: 400, error: `${field} must not be empty` }, JSON.stringify(input));
    }
    assert.equal(upstream.requests.length, 0);
  });
}

test("POST /agents/:id/chat names messages, as the chat hooks call them", async (t) => {
  const { service } = await serveUpstream(t);
  const reply = await errorOf(service.post("/agents/assistant/chat", { id: "c", messages: [user(text(""))] }));
  assert.deepEqual(reply, { status: 400, error: "messages[0].parts must not be empty" });
});

test("POST /agents/:id/text: an image without words is enough, and an empty answer in a chat's history is left out", async (t) => {
  const { service, upstream } = await serveUpstream(t);
  await dataOf(service.post("/agents/assistant/text", { input: [user(IMAGE, text(""))] }));
  assert.deepEqual(
    upstream.requests[0]!.body.messages.at(-1).content.map(({ type }: Loose) => type),
    ["image_url"],
  );
  const failed = { role: "assistant", parts: [{ type: "step-start" }] };
  const silent = { role: "assistant", parts: [{ type: "step-start" }, text("\n")] };
  const input = [user(text("Hi")), failed, silent, user(text("Hi?"))];
  await dataOf(service.post("/agents/assistant/text", { input }));
  assert.deepEqual(
    upstream.requests[1]!.body.messages.map(({ role }: Loose) => role),
    ["system", "user", "user"],
  );
});
