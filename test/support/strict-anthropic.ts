/** Anthropic's messages with Anthropic's own rules: order of roles, results right after their calls, signed thoughts unchanged. */
import { checkContent, refuse } from "./anthropic-blocks.ts";
import { type Answer, counter, type Dialect, event, halves, type Json } from "./strict-upstream.ts";

export function anthropic(): Dialect {
  const newId = counter("");
  /** Every block of thought that was given out, by its signature or its data. */
  const signed = new Map<string, Json>();
  return {
    base: "/v1",
    check(body, path) {
      if (path !== "/v1/messages") refuse("Not Found", 404, "not_found_error");
      checkParameters(body);
      checkMessages(body, signed);
    },
    events: (answer, body) => answerEvents(answer, body, newId, signed),
  };
}

function checkParameters({ model, max_tokens, temperature, top_p, thinking, tools = [] }: Json): void {
  if (max_tokens === undefined) refuse("max_tokens: Field required");
  if (temperature !== undefined && !(temperature >= 0 && temperature <= 1)) refuse("temperature: range: 0..1");
  if (temperature !== undefined && top_p !== undefined && /-4-[5-9]/.test(model))
    refuse("`temperature` and `top_p` cannot both be specified for this model. Please use only one.");
  if (thinking?.type === "enabled") {
    if (temperature !== undefined && temperature !== 1)
      refuse(
        "`temperature` may only be set to 1 when thinking is enabled. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking#important-considerations-when-using-extended-thinking",
      );
    if (max_tokens <= thinking.budget_tokens) refuse("`max_tokens` must be greater than `thinking.budget_tokens`.");
  }
  tools.forEach(({ name }: Json, index: number) => {
    if (!/^[a-zA-Z0-9_-]{1,128}$/.test(name))
      refuse(`tools.${index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'`);
  });
  if (new Set(tools.map(({ name }: Json) => name)).size < tools.length) refuse("tools: Tool names must be unique.");
}

function checkMessages({ messages, system, thinking }: Json, signed: ReadonlyMap<string, Json>): void {
  if (messages.length === 0) refuse("messages: at least one message is required");
  let breakpoints = Array.isArray(system) ? system.filter((block: Json) => block.cache_control).length : 0;
  const ids = new Set<string>();
  messages.forEach((message: Json, index: number) => {
    const { role } = message;
    if (role === "system")
      refuse(
        'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, not "system" as an input message role.',
      );
    if (index === 0 && role !== "user") refuse('messages: first message must use the "user" role');
    if (index > 0 && role === messages[index - 1].role)
      refuse(
        `messages: roles must alternate between "user" and "assistant", but found multiple "${role}" roles in a row`,
      );
    const content = blocksOf(message);
    breakpoints += content.filter((block: Json) => block.cache_control).length;
    checkContent(content, `messages.${index}.content`, signed, ids, role === "assistant");
    checkResults(content, index === 0 ? [] : blocksOf(messages[index - 1]), index);
    checkCalls(content, blocksOf(messages[index + 1]), index);
  });
  if (breakpoints > 4) refuse(`A maximum of 4 blocks with cache_control may be provided. Found ${breakpoints}.`);
  if (thinking?.type === "enabled") checkThoughtBeforeCalls(messages);
}

const blocksOf = (message: Json): Json[] =>
  typeof message?.content === "string" ? [{ type: "text", text: message.content }] : (message?.content ?? []);

function checkResults(content: Json[], before: Json[], index: number): void {
  content.forEach((block, position) => {
    if (block.type !== "tool_result") return;
    if (!before.some(({ type, id }) => type === "tool_use" && id === block.tool_use_id))
      refuse(
        `messages.${index}.content.${position}: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${block.tool_use_id}. Each \`tool_result\` block must have a corresponding \`tool_use\` block in the previous message.`,
      );
  });
}

/** Every call is answered in the next message, whose first blocks are the results. */
function checkCalls(content: Json[], after: Json[], index: number): void {
  const called = content.filter(({ type }) => type === "tool_use").map(({ id }) => id);
  const firstOther = after.findIndex(({ type }) => type !== "tool_result");
  const results = after.slice(0, firstOther === -1 ? undefined : firstOther).map((block) => block.tool_use_id);
  const open = called.filter((id) => !results.includes(id));
  if (open.length > 0)
    refuse(
      `messages.${index}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${open.join(", ")}. Each \`tool_use\` block must have a corresponding \`tool_result\` block in the next message.`,
    );
}

/** While tools are being used, the answer to the user, of which their calls are a part, begins with its thoughts. */
function checkThoughtBeforeCalls(messages: Json[]): void {
  const asked = messages.findLastIndex(
    (message) => message.role === "user" && !blocksOf(message).some(({ type }) => type === "tool_result"),
  );
  const type = blocksOf(messages[asked + 1])[0]?.type;
  if (type === undefined || type === "thinking" || type === "redacted_thinking") return;
  refuse(
    `messages.${asked + 1}.content.0.type: Expected \`thinking\` or \`redacted_thinking\`, but found \`${type}\`. When \`thinking\` is enabled, a final \`assistant\` message must start with a thinking block (preceeding the lastmost set of \`tool_use\` and \`tool_result\` blocks). We recommend you include thinking blocks from previous turns. To avoid this requirement, disable \`thinking\`. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking`,
  );
}

function answerEvents(answer: Answer, body: Json, newId: () => string, signed: Map<string, Json>): string[] {
  const { hidden, text, calls = [], ended } = answer;
  // Told to think, the model does.
  const thought = answer.thought ?? (body.thinking?.type === "enabled" && hidden !== true ? "Hm." : undefined);
  const send = (type: string, fields: Json) => event({ type, ...fields }, type);
  const blocks: { block: Json; deltas: Json[] }[] = [];
  if (thought !== undefined) {
    const signature = `sig${newId()}`;
    signed.set(signature, { type: "thinking", thinking: thought, signature });
    const deltas = halves(thought).map((thinking) => ({ type: "thinking_delta", thinking }));
    const signing = { type: "signature_delta", signature };
    blocks.push({ block: { type: "thinking", thinking: "", signature: "" }, deltas: [...deltas, signing] });
  }
  if (hidden === true) {
    const block = { type: "redacted_thinking", data: `redacted${newId()}` };
    signed.set(block.data, block);
    blocks.push({ block, deltas: [] });
  }
  if (text !== undefined) {
    const deltas = halves(text).map((piece) => ({ type: "text_delta", text: piece }));
    blocks.push({ block: { type: "text", text: "" }, deltas });
  }
  for (const { name, input = {}, id } of calls) {
    const deltas = halves(JSON.stringify(input)).map((partial_json) => ({ type: "input_json_delta", partial_json }));
    blocks.push({ block: { type: "tool_use", id: id ?? `toolu_${newId()}`, name, input: {} }, deltas });
  }
  const usage = { input_tokens: 10, output_tokens: 1 };
  const message = { id: `msg_${newId()}`, type: "message", role: "assistant", model: body.model, content: [] };
  const stop_reason = ended ?? (calls.length > 0 ? "tool_use" : "end_turn");
  return [
    send("message_start", { message: { ...message, stop_reason: null, stop_sequence: null, usage } }),
    ...blocks.flatMap(({ block, deltas }, index) => [
      send("content_block_start", { index, content_block: block }),
      ...deltas.map((delta) => send("content_block_delta", { index, delta })),
      send("content_block_stop", { index }),
    ]),
    send("message_delta", { delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 5 } }),
    send("message_stop", {}),
  ];
}
