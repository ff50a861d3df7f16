/** Converts the options of a call to the body of the request. */
import { InvalidArgumentError, type SharedV3ProviderMetadata, UnsupportedFunctionalityError } from "@ai-sdk/provider";
import { isObject } from "../../lib/is-object.ts";
import type { LanguageModelV3CallOptions, LanguageModelV3Prompt } from "../../plugin/plugin.ts";
import type { WireDelta } from "./wire.ts";

/*
 * What a provider sends with an answer and wants back: thoughts under the name under which they came, their details, and extras of the
 * message or of a call. It is in the metadata of the parts of the answer: of a call `extra_content`, and of one part of the message
 * `message`, of thoughts their `name`.
 */

type Fields = Record<string, unknown>;
type Carrier = { readonly providerOptions?: SharedV3ProviderMetadata | undefined };

export const THOUGHTS = ["reasoning_content", "reasoning"] as const;
export type ThoughtName = (typeof THOUGHTS)[number];
export const DETAILS = "reasoning_details";
const EXTRAS = "extra_content";

/** Collects it from the deltas of one answer. */
export class Carried {
  #name: ThoughtName = "reasoning_content";
  #thought = "";
  #details: Fields[] = [];
  #extras: unknown;

  get name(): ThoughtName {
    return this.#name;
  }

  thought(name: ThoughtName, text: string): void {
    this.#name = name;
    this.#thought += text;
  }

  add({ [DETAILS]: details, [EXTRAS]: extras }: WireDelta): void {
    if (Array.isArray(details)) for (const detail of details) if (isObject(detail)) this.#addDetail(detail);
    if (isObject(extras)) this.#extras = isObject(this.#extras) ? { ...this.#extras, ...extras } : extras;
  }

  /** The metadata of thoughts; undefined for those under the common name. */
  ofThoughts(): Fields | undefined {
    return this.#name === "reasoning_content" ? undefined : { name: this.#name };
  }

  /** That of the last part of the answer. @param withThoughts a call has the thoughts too: not every client has their parts */
  ofMessage(withThoughts: boolean): Fields | undefined {
    const message: Fields = {};
    if (this.#details.length > 0) message[DETAILS] = this.#details;
    else if (withThoughts && this.#thought !== "") message[this.#name] = this.#thought;
    if (this.#extras !== undefined) message[EXTRAS] = this.#extras;
    return Object.keys(message).length === 0 ? undefined : { message };
  }

  /** Texts of one detail come in pieces, with its index; what comes whole has an id of its own. */
  #addDetail(piece: Fields): void {
    const { type, index, id } = piece;
    const isSame = (each: Fields) =>
      each.type === type && each.index === index && (each.id == null || id == null || each.id === id);
    const known = index == null ? this.#details.slice(-1).find(isSame) : this.#details.findLast(isSame);
    if (known === undefined || (index == null && "data" in piece)) {
      this.#details.push({ ...piece });
      return;
    }
    for (const [key, value] of Object.entries(piece)) {
      const grows = GROWING.has(key) && typeof value === "string" && typeof known[key] === "string";
      if (value !== null) known[key] = grows ? `${known[key]}${value}` : value;
    }
  }
}

const GROWING: ReadonlySet<string> = new Set(["text", "summary", "data"]);

/** What the parts of an answer carry for their message. @param name of the thoughts, unless they say theirs */
function carriedBy(parts: readonly Carrier[], keys: readonly string[], thought: string, name: ThoughtName): Fields {
  let own = name;
  const carried: Fields = {};
  for (const part of parts)
    for (const { name: given, message } of valuesOf(part, keys)) {
      own = THOUGHTS.find((each) => each === given) ?? own;
      if (!isObject(message)) continue;
      const details = message[DETAILS];
      if (Array.isArray(details))
        carried[DETAILS] = [...((carried[DETAILS] as unknown[] | undefined) ?? []), ...details];
      if (isObject(message[EXTRAS])) carried[EXTRAS] = message[EXTRAS];
      for (const key of THOUGHTS) if (thought === "" && typeof message[key] === "string") carried[key] = message[key];
    }
  return thought === "" ? carried : { [own]: thought, ...carried };
}

/** The extras of a call. Gemini's own package, and older releases, have its signature alone. */
function extrasOf(call: Carrier, keys: readonly string[]): unknown {
  const values = valuesOf(call, keys);
  const extras = values.find((each) => isObject(each[EXTRAS]))?.[EXTRAS];
  if (extras !== undefined) return extras;
  const signature = [...values, ...valuesOf(call, ["google"])].find((each) => each.thoughtSignature)?.thoughtSignature;
  return signature && { google: { thought_signature: String(signature) } };
}

const valuesOf = ({ providerOptions }: Carrier, keys: readonly string[]): Fields[] =>
  providerOptions === undefined
    ? []
    : keys.flatMap((key): Fields[] => (isObject(providerOptions[key]) ? [providerOptions[key]] : []));

// Converts the prompt to OpenAI's wire format.

type Message = LanguageModelV3Prompt[number];
type Content<R extends Message["role"]> = Extract<Message, { role: R }>["content"][number];
type File = Extract<Content<"user">, { type: "file" }>;
type ToolCall = Extract<Content<"assistant">, { type: "tool-call" }>;
type ToolOutput = Extract<Content<"tool">, { type: "tool-result" }>["output"];
type WireMessage = Record<string, unknown>;

const AUDIO_FORMATS: Readonly<Record<string, string>> = {
  "audio/wav": "wav",
  "audio/mp3": "mp3",
  "audio/mpeg": "mp3",
};

/** @param keys of the metadata with what the provider wants back @param thoughts the name of thoughts that do not say theirs */
function toMessages(prompt: LanguageModelV3Prompt, keys: readonly string[], thoughts: ThoughtName): WireMessage[] {
  const messages: WireMessage[] = [];
  /** Of the results before: the tool's role takes text alone. */
  let files: WireMessage[] = [];
  for (const [index, message] of prompt.entries()) {
    if (message.role !== "tool") {
      messages.push(toMessage(message, keys, thoughts));
      continue;
    }
    addToolResults(message.content, messages, files);
    if (files.length === 0 || prompt[index + 1]?.role === "tool") continue;
    messages.push({ role: "user", content: files });
    files = [];
  }
  return messages;
}

function toMessage(
  message: Exclude<Message, { role: "tool" }>,
  keys: readonly string[],
  thoughts: ThoughtName,
): WireMessage {
  switch (message.role) {
    case "system":
      return withExtras({ role: "system", content: message.content }, message);
    case "user": {
      const [first] = message.content;
      if (message.content.length === 1 && first?.type === "text")
        return withExtras(withExtras({ role: "user", content: first.text }, message), first);
      return withExtras({ role: "user", content: message.content.map(toUserPart) }, message);
    }
    case "assistant":
      return withExtras(toAssistantMessage(message.content, keys, thoughts), message);
  }
}

/** Adds the keys in `providerOptions.openaiCompatible` of a message or a part. */
function withExtras(wire: WireMessage, { providerOptions }: Pick<Message, "providerOptions">): WireMessage {
  const extras = providerOptions?.openaiCompatible;
  return extras === undefined ? wire : Object.assign(wire, extras);
}

function toUserPart(part: Content<"user">): WireMessage {
  return withExtras(part.type === "text" ? { type: "text", text: part.text } : toFilePart(part), part);
}

function toFilePart({ data, mediaType, filename }: File): WireMessage {
  if (mediaType.startsWith("image/")) {
    const type = mediaType === "image/*" ? "image/jpeg" : mediaType;
    const url = data instanceof URL ? data.toString() : `data:${type};base64,${toBase64(data)}`;
    return { type: "image_url", image_url: { url } };
  }
  if (mediaType.startsWith("text/")) return { type: "text", text: fileText(data) };
  if (data instanceof URL) throw unsupported(`files of type ${mediaType} by URL`);
  if (Object.hasOwn(AUDIO_FORMATS, mediaType))
    return { type: "input_audio", input_audio: { data: toBase64(data), format: AUDIO_FORMATS[mediaType] } };
  if (mediaType !== "application/pdf") throw unsupported(`files of type ${mediaType}`);
  const file_data = `data:application/pdf;base64,${toBase64(data)}`;
  return { type: "file", file: { filename: filename ?? "document.pdf", file_data } };
}

const unsupported = (functionality: string) => new UnsupportedFunctionalityError({ functionality });

const toBase64 = (data: Exclude<File["data"], URL>): string =>
  typeof data === "string" ? data : Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64");

function fileText(data: File["data"]): string {
  if (data instanceof URL) return data.toString();
  return (typeof data === "string" ? Buffer.from(data, "base64") : Buffer.from(data)).toString();
}

function toAssistantMessage(
  content: Content<"assistant">[],
  keys: readonly string[],
  thoughts: ThoughtName,
): WireMessage {
  let text = "";
  let reasoning = "";
  const calls: WireMessage[] = [];
  for (const part of content) {
    if (part.type === "text") text += part.text;
    else if (part.type === "reasoning") reasoning += part.text;
    else if (part.type === "tool-call") calls.push(toWireCall(part, keys));
  }
  const message: WireMessage = { role: "assistant", content: calls.length > 0 && text === "" ? null : text };
  Object.assign(message, carriedBy(content, keys, reasoning, thoughts));
  if (calls.length > 0) message.tool_calls = calls;
  return message;
}

function toWireCall(part: ToolCall, keys: readonly string[]): WireMessage {
  const { toolCallId: id, toolName: name, input } = part;
  const own = { id, type: "function", function: { name, arguments: JSON.stringify(input) } };
  const { message: _, ...call } = withExtras(own, part);
  const extras = extrasOf(part, keys);
  return extras ? { ...call, extra_content: extras } : call;
}

function addToolResults(content: Content<"tool">[], messages: WireMessage[], files: WireMessage[]): void {
  for (const part of content) {
    if (part.type !== "tool-result") continue;
    const message = { role: "tool", tool_call_id: part.toolCallId, content: outputText(part.output, files) };
    messages.push(withExtras(message, part));
  }
}

/** @param files takes those of the result */
function outputText(output: ToolOutput, files: WireMessage[]): string {
  switch (output.type) {
    case "text":
    case "error-text":
      return output.value;
    case "execution-denied":
      return output.reason ?? "Tool call execution denied.";
    case "content":
      return output.value.map((item) => itemText(item, files)).join("\n");
    default:
      return JSON.stringify(output.value);
  }
}

type ResultItem = Extract<ToolOutput, { type: "content" }>["value"][number];

/** The text of a part of a result. In place of a file it says where the file is. */
function itemText(item: ResultItem, files: WireMessage[]): string {
  if (item.type === "text") return item.text;
  const file = fileOf(item);
  if (file === null) return JSON.stringify(item);
  try {
    files.push(toFilePart(file));
    return "[The file is in the next message of the user.]";
  } catch (error) {
    if (!UnsupportedFunctionalityError.isInstance(error)) throw error;
    return `[A file was here, which this model does not take: ${file.mediaType}]`;
  }
}

function fileOf(item: ResultItem): File | null {
  switch (item.type) {
    case "image-data":
    case "file-data":
      return { type: "file", data: item.data, mediaType: item.mediaType };
    case "image-url":
      return URL.canParse(item.url) ? { type: "file", data: new URL(item.url), mediaType: "image/*" } : null;
    default:
      return null;
  }
}

/*
 * OpenAI's strict mode accepts only schemas in which every property is required and no others are allowed: it is requested only
 * for such schemas.
 */

type Node = Record<string, unknown>;

/** Keywords that strict mode rejects. */
const UNSUPPORTED_KEYWORDS = [
  "allOf",
  "not",
  "if",
  "then",
  "else",
  "oneOf",
  "dependentRequired",
  "dependentSchemas",
  "patternProperties",
];
const SCHEMA_LISTS = ["anyOf", "prefixItems"];
const SCHEMA_MAPS = ["properties", "$defs", "definitions"];

const isNode = (value: unknown): value is Node => isObject(value);

/** Whether every object of the schema lists all its properties as required and allows no others. */
function canBeStrict(schema: unknown): boolean {
  if (!isNode(schema)) return false;
  if (UNSUPPORTED_KEYWORDS.some((keyword) => keyword in schema)) return false;
  if (([schema.type].flat().includes("object") || "properties" in schema) && !isClosed(schema)) return false;
  const subschemas = [
    ...SCHEMA_MAPS.flatMap((keyword) => (isNode(schema[keyword]) ? Object.values(schema[keyword]) : [])),
    ...SCHEMA_LISTS.flatMap((keyword) => (Array.isArray(schema[keyword]) ? schema[keyword] : [])),
    ...("items" in schema ? [schema.items] : []),
  ];
  return subschemas.every(canBeStrict);
}

function isClosed(schema: Node): boolean {
  const keys = isNode(schema.properties) ? Object.keys(schema.properties) : [];
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  return schema.additionalProperties === false && keys.every((key) => required.has(key));
}

export type Body = Record<string, unknown> & { messages: Record<string, unknown>[] };

type Warning = { type: "unsupported"; feature: string };

/** The settings that are the same for every call of a model. */
export interface ModelForm {
  readonly modelId: string;
  /** Keys of `providerOptions`, of which the last takes precedence: the provider's name, and that in camel case. */
  readonly optionKeys: readonly string[];
  readonly includeUsage: boolean;
  readonly learned: { readonly thoughts: ThoughtName };
}

/** The options in `providerOptions` that are renamed for the request, with their types. */
const NAMED_OPTIONS: Readonly<Record<string, "string" | "boolean">> = {
  user: "string",
  reasoningEffort: "string",
  textVerbosity: "string",
  strictJsonSchema: "boolean",
};
const SHARED_KEYS = ["openai-compatible", "openaiCompatible"];
const STREAM_OPTIONS = { include_usage: true };

interface NamedOptions {
  user?: string;
  reasoningEffort?: string;
  textVerbosity?: string;
  strictJsonSchema?: boolean;
}

/** The key under which the request has its options, which is also used for the metadata of the answer. */
export function metadataKeyOf({ optionKeys }: ModelForm, { providerOptions }: LanguageModelV3CallOptions): string {
  return optionKeys.findLast((key) => providerOptions?.[key] !== undefined) ?? optionKeys[0]!;
}

function namedOptions({ optionKeys }: ModelForm, { providerOptions }: LanguageModelV3CallOptions): NamedOptions {
  const named: Record<string, unknown> = {};
  if (providerOptions === undefined) return named;
  for (const key of [...SHARED_KEYS, ...optionKeys]) {
    const given = providerOptions[key];
    if (given === undefined) continue;
    for (const [name, type] of Object.entries(NAMED_OPTIONS)) {
      const value = given[name];
      if (value === undefined) continue;
      if (typeof value !== type)
        throw new InvalidArgumentError({ argument: "providerOptions", message: `${key}.${name} must be a ${type}` });
      named[name] = value;
    }
  }
  return named;
}

export function toBody(form: ModelForm, options: LanguageModelV3CallOptions): Body {
  const named = namedOptions(form, options);
  const tools = options.tools === undefined || options.tools.length === 0 ? undefined : options.tools;
  return {
    user: named.user,
    max_tokens: options.maxOutputTokens ?? undefined,
    temperature: options.temperature ?? undefined,
    top_p: options.topP ?? undefined,
    frequency_penalty: options.frequencyPenalty ?? undefined,
    presence_penalty: options.presencePenalty ?? undefined,
    stop: options.stopSequences ?? undefined,
    seed: options.seed ?? undefined,
    ...passedThrough(form, options),
    reasoning_effort: named.reasoningEffort,
    verbosity: named.textVerbosity,
    // After the client's own options, which must not override these.
    model: form.modelId,
    messages: toMessages(options.prompt, [...SHARED_KEYS, ...form.optionKeys], form.learned.thoughts),
    ...toResponseFormat(options.responseFormat, named.strictJsonSchema ?? true),
    tools: tools && toTools(tools),
    tool_choice: tools && toToolChoice(options.toolChoice),
    stream: true,
    stream_options: form.includeUsage ? STREAM_OPTIONS : undefined,
  };
}

/** Warnings about options that cannot be sent. */
export function warningsOf({ topK, tools = [] }: LanguageModelV3CallOptions): Warning[] {
  const features = tools.flatMap((tool) => (tool.type === "provider" ? [`provider-defined tool ${tool.id}`] : []));
  if (topK !== undefined && topK !== null) features.unshift("topK");
  return features.map((feature) => ({ type: "unsupported", feature }));
}

/** Options that only the provider knows. */
function passedThrough({ optionKeys }: ModelForm, { providerOptions }: LanguageModelV3CallOptions): object | undefined {
  if (providerOptions === undefined) return undefined;
  const given = Object.entries(Object.assign({}, ...optionKeys.map((key) => providerOptions[key])));
  return Object.fromEntries(given.filter(([name]) => !Object.hasOwn(NAMED_OPTIONS, name)));
}

function toTools(tools: NonNullable<LanguageModelV3CallOptions["tools"]>): object[] {
  return tools.flatMap((tool) => {
    if (tool.type !== "function") return [];
    const { name, description, inputSchema: parameters, strict } = tool;
    return [{ type: "function", function: { name, description, parameters, strict } }];
  });
}

function toResponseFormat(format: LanguageModelV3CallOptions["responseFormat"], strict: boolean): object | undefined {
  if (format?.type !== "json") return undefined;
  const { schema, name = "response", description } = format;
  if (schema === undefined) return { response_format: { type: "json_object" } };
  const json_schema = { schema, strict: strict && canBeStrict(schema), name, description };
  return { response_format: { type: "json_schema", json_schema } };
}

function toToolChoice(choice: LanguageModelV3CallOptions["toolChoice"]): unknown {
  return choice?.type === "tool" ? { type: "function", function: { name: choice.toolName } } : choice?.type;
}
