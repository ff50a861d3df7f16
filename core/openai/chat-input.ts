/** Converts the messages of a chat completion to the form that agents read. */
import { invalid, listed } from "../lib/errors.ts";
import { type Fields, isObject } from "../lib/is-object.ts";
import { type InputMessage, type InputPart, placed } from "./errors.ts";
import { parseArguments, readAudio, readContent, readFile, readImage, readText, textPart } from "./item-parts.ts";
import { isNothing } from "./tools.ts";

const TEXTS = { text: textPart() };
const USER_PARTS = {
  text: textPart(),
  image_url: ({ image_url: image }: Fields, path: string) =>
    isObject(image) ? readImage(image.url, `${path}.image_url.url`) : readImage(image, `${path}.image_url`),
  input_audio: ({ input_audio: audio }: Fields, path: string) => readAudio(audio, `${path}.input_audio`),
  file: ({ file }: Fields, path: string) => readFile(isObject(file) ? file : {}, `${path}.file`),
};
const ASSISTANT_PARTS = { text: textPart(), refusal: textPart("refusal") };

/** Names of functions by the ids of their calls. */
type Calls = ReadonlyMap<string, string>;

const READERS: Readonly<Record<string, (message: Fields, path: string, calls: Calls) => InputMessage | null>> = {
  system: readSystem,
  developer: readSystem,
  user: ({ content }, path) => ({ role: "user", content: readContent(content, USER_PARTS, `${path}.content`) }),
  assistant: readAssistant,
  tool({ tool_call_id: id, content }, path, calls) {
    const toolName = typeof id === "string" ? calls.get(id) : undefined;
    if (toolName === undefined) throw invalid(`${path}.tool_call_id must be the id of a call in the messages`);
    const value = readText(content, TEXTS, `${path}.content`);
    const part = { type: "tool-result", toolCallId: id, toolName, output: { type: "text", value } };
    return { role: "tool", content: [part] };
  },
};

/** @throws ServiceError `invalid_input` that names the field */
export function readChatMessages(messages: readonly Fields[]): InputMessage[] {
  const calls: Calls = new Map(messages.flatMap(callsIn));
  return messages.flatMap((message, index) => {
    const path = `messages[${index}]`;
    const { role } = message;
    const reader = typeof role === "string" && Object.hasOwn(READERS, role) ? READERS[role] : undefined;
    if (reader === undefined) throw invalid(`${path}.role must be one of ${listed(Object.keys(READERS))}`);
    const read = reader(message, path, calls);
    return read === null ? [] : placed(read, path);
  });
}

/** The calls of a message as far as they are valid: a client may put a result before its call. */
const callsIn = ({ tool_calls: list }: Fields): [string, string][] =>
  (Array.isArray(list) ? list : []).flatMap((call): [string, string][] =>
    isObject(call) && isObject(call.function) ? [[String(call.id), String(call.function.name)]] : [],
  );

function readSystem({ content }: Fields, path: string): InputMessage {
  return { role: "system", content: readText(content, TEXTS, `${path}.content`) };
}

/** Null for an empty answer: chats keep answers that were broken off. */
function readAssistant(message: Fields, path: string): InputMessage | null {
  const { content, refusal, tool_calls: list } = message;
  const said = isNothing(content) ? [] : readContent(content, ASSISTANT_PARTS, `${path}.content`);
  const refused = typeof refusal === "string" ? [{ type: "text", text: refusal }] : [];
  if (!isNothing(list) && !Array.isArray(list)) throw invalid(`${path}.tool_calls must be array`);
  const called = ((list ?? []) as unknown[]).map((call, index) => readCall(call, `${path}.tool_calls[${index}]`));
  const parts = [...said, ...refused, ...called].filter(
    ({ type, text }) => type !== "text" || (text as string).trim() !== "",
  );
  return parts.length === 0 ? null : { role: "assistant", content: [...readThoughts(message), ...parts] };
}

/** The format of details that Claude has signed, as OpenRouter calls it. */
export const CLAUDE = "anthropic-claude-v1";

/** Thoughts, and what else the provider of a model wants back with its answer. Other providers are not sent it. */
function readThoughts({
  reasoning_content: thought,
  reasoning,
  reasoning_details,
  extra_content,
}: Fields): InputPart[] {
  const [text, name] = typeof thought === "string" ? [thought] : [reasoning, "reasoning"];
  const words = typeof text === "string" ? text : "";
  const part = (of: string, message: Fields, signed?: Fields): InputPart => ({
    type: "reasoning",
    text: of,
    providerOptions: { openaiCompatible: { ...(name && { name }), message }, ...signed },
  });
  const extras = isObject(extra_content) ? { extra_content } : {};
  const details: unknown[] = Array.isArray(reasoning_details) ? reasoning_details : [];
  const signed = details.map(readSigned);
  // Each signature is for a text of its own, which clients that join deltas in their own way may have lost elsewhere.
  if (signed.some((each) => each !== null))
    return signed.map((each, index) =>
      part(each?.text ?? "", { ...extras, reasoning_details: [details[index]] }, each?.options),
    );
  const message = { ...(details.length > 0 && { reasoning_details: details }), ...extras };
  return words === "" && Object.keys(message).length === 0 ? [] : [part(words, message)];
}

/** The text of a detail that Claude has signed, and the signature as its packages have it; null for others. */
function readSigned(detail: unknown): { text: string; options: Fields } | null {
  if (!isObject(detail) || detail.format !== CLAUDE) return null;
  const { text, signature, data: redactedData } = detail;
  const own = typeof signature === "string" ? { signature } : { redactedData };
  if (typeof Object.values(own)[0] !== "string") return null;
  return { text: typeof text === "string" ? text : "", options: { anthropic: own, bedrock: own } };
}

function readCall(call: unknown, path: string): InputPart {
  const { id, function: called } = (isObject(call) ? call : {}) as { id?: unknown; function?: unknown };
  if (typeof id !== "string" || id === "") throw invalid(`${path}.id must be a non-empty string`);
  if (!isObject(called) || typeof called.name !== "string") throw invalid(`${path}.function.name must be string`);
  const input = parseArguments(called.arguments, `${path}.function.arguments`);
  return { type: "tool-call", toolCallId: id, toolName: called.name, input, ...readExtras(call as Fields) };
}

/** The extras of a call, and in them the signature of Gemini for its own package too. */
function readExtras({ extra_content: extras }: Fields) {
  if (!isObject(extras)) return undefined;
  const { thought_signature: signature } = isObject(extras.google) ? extras.google : {};
  const google = signature === undefined ? undefined : { google: { thoughtSignature: signature } };
  return { providerOptions: { openaiCompatible: { extra_content: extras }, ...google } };
}
