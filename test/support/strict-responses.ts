/**
 * OpenAI's Responses API with OpenAI's own rules. Items of complete answers are kept and can be referred to by id, unless
 * `store` is false: then reasoning travels encrypted, and has to come back before the calls that it led to.
 */
import { checkImage, checkName, checkParameters, checkPdf, checkStrictSchema, refuse } from "./strict-openai.ts";
import { type Answer, counter, type Dialect, event, halves, type Json } from "./strict-upstream.ts";

const REFUSED_BY_REASONING = ["max_tokens", "presence_penalty", "frequency_penalty", "stop"];

interface Known {
  item: Json;
  /** The reasoning item that led to it. */
  reasoning: string | null;
  stored: boolean;
}

export function openAIResponses(): Dialect {
  const newId = counter("");
  const known = new Map<string, Known>();
  return {
    base: "/v1",
    check(body, path) {
      if (path !== "/v1/responses") refuse(`Invalid URL (POST ${path})`, null, null, 404);
      for (const name of ["max_tokens", "messages", "response_format"])
        if (body[name] !== undefined) refuse(`Unknown parameter: '${name}'.`, name, "unknown_parameter");
      checkParameters(body, REFUSED_BY_REASONING);
      (body.tools ?? []).forEach((tool: Json, index: number) => {
        if (tool.type !== "function") return;
        checkName(tool.name, `tools[${index}].name`);
        if (tool.strict === true)
          checkStrictSchema(tool.parameters, `function '${tool.name}'`, `tools[${index}].parameters`);
      });
      const format = body.text?.format;
      if (format?.type === "json_schema" && format.strict === true)
        checkStrictSchema(format.schema, `response_format '${format.name}'`, "text.format.schema");
      if (format?.type === "json_object" && !/json/i.test(JSON.stringify(body.input)))
        refuse(
          "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.",
          "input",
        );
      checkInput(body.input, known);
    },
    whole: ({ input, ...body }) => ({ ...body, input: input.map((item: Json) => known.get(item.id)?.item ?? item) }),
    events: (answer, body) => answerEvents(answer, body, newId, known),
  };
}

function checkInput(input: Json[], known: ReadonlyMap<string, Known>): void {
  const items = input.map((item) => (item.type === "item_reference" ? stored(item.id, known) : item));
  const called = new Set<string>();
  const answered = new Set<string>();
  items.forEach((item, index) => {
    switch (item.type) {
      case "reasoning": {
        checkReasoning(item, known);
        const next = items[index + 1];
        if (
          item.id !== undefined &&
          next?.type !== "function_call" &&
          next?.type !== "reasoning" &&
          next?.role !== "assistant"
        )
          refuse(`Item '${item.id}' of type 'reasoning' was provided without its required following item.`, "input");
        return;
      }
      case "function_call": {
        checkName(item.name, `input[${index}].name`);
        if (called.has(item.call_id)) refuse(`Duplicate function call with call_id ${item.call_id}.`, "input");
        called.add(item.call_id);
        requireReasoning(item, items.slice(0, index), known);
        return;
      }
      case "function_call_output":
        if (!called.has(item.call_id))
          refuse(`No tool call found for function call output with call_id ${item.call_id}.`, "input");
        answered.add(item.call_id);
        return;
      default:
        if (Array.isArray(item.content))
          for (const part of item.content) {
            if (/^input_(?:image|file)$/.test(part.type) && item.role !== "user")
              refuse(`Invalid value: '${part.type}'. Supported values are: 'output_text' and 'refusal'.`, "input");
            if (part.type === "input_image") checkImage(part.image_url, "input");
            if (part.type === "input_file") checkPdf(part, "input");
          }
        if (item.role === "assistant") requireReasoning(item, items.slice(0, index), known);
    }
  });
  for (const id of called) if (!answered.has(id)) refuse(`No tool output found for function call ${id}.`, "input");
}

function stored(id: string, known: ReadonlyMap<string, Known>): Json {
  const found = known.get(id);
  if (found === undefined) refuse(`Item with id '${id}' not found.`, "input", null, 404);
  if (!found.stored)
    refuse(
      `Item with id '${id}' not found. Items are not persisted when \`store\` is set to false. Try again with \`store\` set to true, or remove this item from your input.`,
      "input",
      null,
      404,
    );
  return found.item;
}

/** The encrypted content must be what was given out. */
function checkReasoning(item: Json, known: ReadonlyMap<string, Known>): void {
  const encrypted = item.encrypted_content;
  const original = [...known.values()].find(({ item: { encrypted_content: given } }) => given === encrypted)?.item;
  if (encrypted == null) {
    if (item.id !== undefined && known.get(item.id)?.stored !== true) stored(item.id, known);
  } else if (original === undefined || (item.id !== undefined && item.id !== original.id)) {
    refuse(
      `The encrypted content for item ${item.id} could not be verified. Reason: Encrypted content could not be decrypted or parsed.`,
      null,
      "invalid_encrypted_content",
    );
  }
}

/** An item that is sent with its id needs the reasoning that led to it. */
function requireReasoning(item: Json, before: readonly Json[], known: ReadonlyMap<string, Known>): void {
  const reasoning = known.get(item.id)?.reasoning ?? null;
  if (reasoning === null || before.some(({ id }) => id === reasoning)) return;
  refuse(
    `Item '${item.id}' of type '${item.type ?? "message"}' was provided without its required 'reasoning' item: '${reasoning}'.`,
    "input",
  );
}

function outputItems({ thought, hidden, text, calls = [] }: Answer, body: Json, newId: () => string): Json[] {
  const items: Json[] = [];
  if (thought !== undefined || hidden === true) {
    const id = `rs_${newId()}`;
    const encrypted = body.include?.includes("reasoning.encrypted_content") ? `gAAAA${newId()}` : null;
    const summary = thought === undefined ? [] : [{ type: "summary_text", text: thought }];
    items.push({ id, type: "reasoning", summary, encrypted_content: encrypted });
  }
  if (text !== undefined) {
    const content = [{ type: "output_text", text, annotations: [], logprobs: [] }];
    items.push({ id: `msg_${newId()}`, type: "message", status: "completed", role: "assistant", content });
  }
  for (const { name, input = {}, id } of calls) {
    const call = { call_id: id ?? `call_${newId()}`, name, arguments: JSON.stringify(input) };
    items.push({ id: `fc_${newId()}`, type: "function_call", status: "completed", ...call });
  }
  return items;
}

function answerEvents(answer: Answer, body: Json, newId: () => string, known: Map<string, Known>): string[] {
  const output = outputItems(answer, body, newId);
  const reasoning = output.find(({ type }) => type === "reasoning")?.id ?? null;
  for (const item of output)
    known.set(item.id, { item, reasoning: item.id === reasoning ? null : reasoning, stored: false });
  let sequence = 0;
  const send = (type: string, fields: Json) => event({ type, sequence_number: sequence++, ...fields }, type);
  const response = {
    id: `resp_${newId()}`,
    object: "response",
    created_at: 1,
    model: body.model,
    service_tier: "default",
  };
  const usage = {
    input_tokens: 10,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: 5,
    output_tokens_details: { reasoning_tokens: reasoning === null ? 0 : 3 },
    total_tokens: 15,
  };
  const events = [
    send("response.created", { response: { ...response, status: "in_progress", output: [] } }),
    ...output.flatMap((item, output_index) => [
      send("response.output_item.added", { output_index, item: begun(item) }),
      ...contentEvents(item, output_index, send),
      send("response.output_item.done", { output_index, item }),
    ]),
    send("response.completed", { response: { ...response, status: "completed", output, usage } }),
  ];
  const complete = (answer.breaksAfter ?? events.length) >= events.length;
  if (complete && body.store !== false) for (const { id } of output) known.get(id)!.stored = true;
  return events;
}

const begun = (item: Json): Json => ({
  ...item,
  ...(item.status !== undefined && { status: "in_progress" }),
  ...(item.type === "message" && { content: [] }),
  ...(item.type === "function_call" && { arguments: "" }),
  ...(item.type === "reasoning" && { summary: [], encrypted_content: item.encrypted_content && "gAAAAbegun" }),
});

function contentEvents(item: Json, output_index: number, send: (type: string, fields: Json) => string): string[] {
  const at = { item_id: item.id, output_index };
  if (item.type === "function_call") {
    const pieces = halves(item.arguments);
    return [
      ...pieces.map((delta) => send("response.function_call_arguments.delta", { ...at, delta })),
      send("response.function_call_arguments.done", { ...at, arguments: item.arguments }),
    ];
  }
  if (item.type === "message") {
    const { text } = item.content[0];
    const pieces = halves(text);
    return pieces.map((delta) => send("response.output_text.delta", { ...at, content_index: 0, delta, logprobs: [] }));
  }
  return item.summary.flatMap((part: Json, summary_index: number) => [
    send("response.reasoning_summary_part.added", { ...at, summary_index, part: { type: "summary_text", text: "" } }),
    ...halves(part.text).map((delta) => send("response.reasoning_summary_text.delta", { ...at, summary_index, delta })),
    send("response.reasoning_summary_part.done", { ...at, summary_index, part }),
  ]);
}
