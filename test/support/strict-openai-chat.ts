/** OpenAI's chat completions with OpenAI's own rules: what it refuses is refused here, in its words. */
import { checkImage, checkName, checkParameters, checkPdf, checkStrictSchema, refuse } from "./strict-openai.ts";
import { type Answer, counter, type Dialect, event, halves, type Json } from "./strict-upstream.ts";

const ROLES = ["system", "developer", "user", "assistant", "tool", "function"];
const REFUSED_BY_REASONING = ["max_tokens", "presence_penalty", "frequency_penalty", "logprobs", "stop"];

export function openAIChat(): Dialect {
  const newId = counter("call_");
  return {
    base: "/v1",
    check(body, path) {
      if (path !== "/v1/chat/completions") refuse(`Invalid URL (POST ${path})`, null, null, 404);
      checkParameters(body, REFUSED_BY_REASONING);
      (body.tools ?? []).forEach(({ function: tool }: Json, index: number) => {
        checkName(tool.name, `tools[${index}].function.name`);
        if (tool.strict === true)
          checkStrictSchema(tool.parameters, `function '${tool.name}'`, `tools[${index}].function.parameters`);
      });
      checkFormat(body);
      checkMessages(body.messages);
    },
    events: (answer, body) => chunks(answer, body, newId),
  };
}

function checkFormat({ response_format: format, messages }: Json): void {
  if (format?.type === "json_schema" && format.json_schema.strict === true)
    checkStrictSchema(format.json_schema.schema, `response_format '${format.json_schema.name}'`, "response_format");
  if (format?.type === "json_object" && !/json/i.test(JSON.stringify(messages)))
    refuse(
      "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
      "messages",
    );
}

function checkMessages(messages: Json[]): void {
  if (!Array.isArray(messages) || messages.length === 0)
    refuse(
      "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
      "messages",
      "empty_array",
    );
  let open: string[] = [];
  messages.forEach((message, index) => {
    const at = `messages[${index}]`;
    const { role, content, tool_calls: calls } = message;
    if (!ROLES.includes(role))
      refuse(
        `Invalid value: '${role}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.`,
        `${at}.role`,
        "invalid_value",
      );
    if (role === "tool") {
      if (open.length === 0 && messages[index - 1]?.role !== "tool")
        refuse(
          "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
          `messages.[${index}].role`,
        );
      if (!open.includes(message.tool_call_id))
        refuse(
          "Invalid parameter: 'tool_call_id' of '" +
            message.tool_call_id +
            "' not found in 'tool_calls' of previous message.",
          `messages.[${index}].tool_call_id`,
        );
      open = open.filter((id) => id !== message.tool_call_id);
      return;
    }
    requireAnswers(open, index);
    if (content === null && calls === undefined)
      refuse(`Invalid value for 'content': expected a string, got null.`, `messages.[${index}].content`);
    if (Array.isArray(content)) {
      content.forEach((part, position) => {
        const here = `${at}.content[${position}]`;
        if (part.type !== "text" && message.role !== "user")
          refuse(
            `Invalid '${at}'. Files are only allowed for messages with role 'user', but this message with role '${message.role}' contains one.`,
            at,
          );
        if (part.type === "image_url") checkImage(part.image_url.url, `${here}.image_url`);
        if (part.type === "file") checkPdf(part.file, `${here}.file.file_data`);
        if (part.type === "input_audio")
          refuse("Invalid content type. input_audio is only supported by certain models.", here);
      });
    }
    open = (calls ?? []).map((call: Json, position: number) => {
      checkName(call.function.name, `${at}.tool_calls[${position}].function.name`);
      return call.id;
    });
  });
  requireAnswers(open, messages.length);
}

function requireAnswers(open: readonly string[], index: number): void {
  if (open.length === 0) return;
  refuse(
    `An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: ${open.join(", ")}`,
    `messages.[${index}].role`,
  );
}

function chunks({ text, calls = [] }: Answer, body: Json, newId: () => string): string[] {
  const head = { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: body.model };
  const chunk = (delta: unknown, finish: string | null = null) =>
    event({ ...head, choices: [{ index: 0, delta, finish_reason: finish }] });
  const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
  return [
    chunk({ role: "assistant", content: text === undefined ? null : "" }),
    ...halves(text ?? "").map((content) => chunk({ content })),
    ...calls.flatMap(({ name, input = {}, id }, index) => [
      chunk({ tool_calls: [{ index, id: id ?? newId(), type: "function", function: { name, arguments: "" } }] }),
      ...halves(JSON.stringify(input)).map((piece) =>
        chunk({ tool_calls: [{ index, function: { arguments: piece } }] }),
      ),
    ]),
    chunk({}, calls.length > 0 ? "tool_calls" : "stop"),
    ...(body.stream_options?.include_usage === true ? [event({ ...head, choices: [], usage })] : []),
    "data: [DONE]\n\n",
  ];
}
