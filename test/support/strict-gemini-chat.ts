/** Gemini in OpenAI's protocol: its thought signatures are beside the calls, and have to come back there. */
import { openAIChat } from "./strict-openai-chat.ts";
import { counter, type Dialect, event, type Json, Refusal } from "./strict-upstream.ts";

const BASE = "/v1beta/openai";

export function geminiChat(): Dialect {
  const chat = openAIChat();
  const newId = counter("sig");
  const signatures = new Set<string>();
  return {
    base: BASE,
    check(body, path) {
      chat.check(body, path.replace(BASE, "/v1"));
      requireSignatures(body.messages, signatures);
    },
    events: (answer, body) =>
      chat.events(answer, body).map((text) => {
        const chunk: Json = text.startsWith("data: {") ? JSON.parse(text.slice("data: ".length)) : null;
        const call = chunk?.choices[0]?.delta.tool_calls?.[0];
        // Of parallel calls only the first is signed.
        if (call?.index !== 0 || call.id === undefined) return text;
        const thought_signature = newId();
        signatures.add(thought_signature);
        call.extra_content = { google: { thought_signature } };
        return event(chunk);
      }),
  };
}

/** Since the user last spoke, the first call of every answer is signed. */
function requireSignatures(messages: Json[], signatures: ReadonlySet<string>): void {
  const spoken = messages.findLastIndex(({ role }) => role === "user");
  messages.forEach(({ tool_calls: calls }, index) => {
    const call = calls?.[0];
    if (call === undefined) return;
    const signature = call.extra_content?.google?.thought_signature;
    if (signature === undefined ? index > spoken : !signatures.has(signature)) refuse(call.function.name, index);
  });
}

function refuse(name: string, index: number): never {
  const message = `Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call \`default_api:${name}\` , position ${index + 1}. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details.`;
  throw new Refusal(400, message, [{ error: { code: 400, message, status: "INVALID_ARGUMENT" } }]);
}
