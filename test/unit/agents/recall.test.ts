/** What a turn takes from a request. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseTurnInput } from "../../../core/agents/conversation/turn-input.ts";

const text = (words: string) => [{ type: "text" as const, text: words }];
test("a string is the user's message and the title, cut to 80 characters but never within one", () => {
  const { user: message, title } = parseTurnInput(`  ${"x".repeat(79)}\u{1F600} more`);
  assert.equal(title(), "x".repeat(79));
  assert.equal(message!.role, "user");
  assert.equal(parseTurnInput("Hello\n  world").title(), "Hello world");
});

test("what the user said since the assistant spoke is one message; title and text are of the first and last", () => {
  const input = parseTurnInput([
    { role: "user", content: "first" },
    { role: "assistant", content: "well" },
    { id: "u2", role: "user", parts: text("second"), metadata: { from: "web" } },
    { id: "u3", role: "user", parts: text("third") },
  ]);
  assert.deepEqual(input.user, { id: "u3", role: "user", parts: [...text("second"), ...text("third")] });
  assert.equal(input.title(), "first");
  assert.equal(input.text, "third");
  assert.deepEqual([...input.messageIds], ["u2", "u3"]);
});

test("an answer that goes on with the assistant's last message begins with its parts", () => {
  const parts = [{ type: "tool-ask", toolCallId: "1", state: "output-available", input: {}, output: 1 }];
  const input = parseTurnInput([
    { id: "u1", role: "user", parts: text("go") },
    { id: "a1", role: "assistant", parts },
  ]);
  assert.deepEqual(input.continued, { id: "a1", parts });
  assert.equal(input.user!.id, "u1");
  assert.equal(
    parseTurnInput([
      { role: "user", content: "go" },
      { role: "assistant", content: "on" },
    ]).user,
    null,
  );
});
