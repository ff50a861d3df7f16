/**
 * What OpenAI, Anthropic, Gemini, Bedrock and llama.cpp accept as a prompt, as one model: the strictest of each, over what reaches
 * the wire. Every strict upstream holds its requests against it before its own rules.
 */
import type { Json } from "./strict-upstream.ts";

/** One piece of a prompt, in whatever protocol it was sent. */
type Piece =
  | { kind: "text"; text: unknown }
  | { kind: "file"; type?: string; data?: string }
  | { kind: "call"; id: string | null; input: unknown }
  | { kind: "result"; id: string | null; text?: unknown }
  | { kind: "thought" | "other" };

interface Message {
  role: "system" | "user" | "assistant";
  pieces: Piece[];
}

/** Why no provider would take the prompt, or null. @param path of the request, by which the protocol is known */
export function promptFlaw(body: Json, path: string): string | null {
  const malformed = malformedPlace(body, "body");
  if (malformed !== null) return `${malformed} is not well-formed text`;
  const prompt = joined(read(body, path));
  for (const rule of Object.keys(RULES)) if (!RULES[rule]!(prompt)) return `${rule}: ${outline(prompt)}`;
  return null;
}

const RULES: Record<string, (prompt: Message[]) => boolean> = {
  "there is something to answer": (prompt) => spoken(prompt).length > 0,
  "system messages stand at the front": (prompt) =>
    prompt.findLastIndex(({ role }) => role === "system") === prompt.filter(({ role }) => role === "system").length - 1,
  "the user begins": (prompt) => spoken(prompt)[0]?.role === "user",
  "no message is empty": (prompt) => prompt.every(({ pieces }) => pieces.length > 0),
  "no text is blank": (prompt) =>
    prompt.every(({ pieces }) => pieces.every((piece) => piece.kind !== "text" || /\S/.test(String(piece.text)))),
  "the input of a call is an object": (prompt) =>
    ofKind(prompt, "call").every(({ input }) => typeof input === "object" && input !== null && !Array.isArray(input)),
  "ids of calls are unique": (prompt) => {
    const ids = ofKind(prompt, "call").flatMap(({ id }) => id ?? []);
    return new Set(ids).size === ids.length;
  },
  "results stand behind their calls, one for each, before anything else": (prompt) =>
    spoken(prompt).every(({ pieces }, index, all) => {
      const called = idsOf(pieces, "call");
      const results = idsOf(all[index + 1]?.pieces ?? [], "result");
      const first = (all[index + 1]?.pieces ?? []).slice(0, results.length);
      const before = index === 0 ? [] : idsOf(all[index - 1]!.pieces, "call");
      if (idsOf(pieces, "result").length > 0 && before.length === 0) return false;
      if (called.length === 0) return true;
      return first.every(({ kind }) => kind === "result") && same(called, results);
    }),
};

const spoken = (prompt: Message[]): Message[] => prompt.filter(({ role }) => role !== "system");
const ofKind = <K extends Piece["kind"]>(prompt: Message[], kind: K) =>
  prompt.flatMap(({ pieces }) => pieces.filter((piece): piece is Extract<Piece, { kind: K }> => piece.kind === kind));
const idsOf = (pieces: Piece[], kind: "call" | "result"): (string | null)[] =>
  pieces.flatMap((piece) => (piece.kind === kind ? [piece.id] : []));
const same = (left: readonly unknown[], right: readonly unknown[]) =>
  JSON.stringify([...left].sort()) === JSON.stringify([...right].sort());
const outline = (prompt: Message[]) =>
  prompt.map(({ role, pieces }) => `${role}(${pieces.map(show).join(" ")})`).join(" ");
const show = (piece: Piece) => ("id" in piece ? `${piece.kind} ${piece.id}` : piece.kind);

/** The place of a text with a lone surrogate, which is no UTF-8. */
function malformedPlace(value: Json, place: string): string | null {
  if (typeof value === "string") return value.isWellFormed() ? null : place;
  if (typeof value !== "object" || value === null) return null;
  for (const [key, item] of Object.entries(value)) {
    const found = key.isWellFormed() ? malformedPlace(item, `${place}.${key}`) : `${place}.${key}`;
    if (found !== null) return found;
  }
  return null;
}

function read(body: Json, path: string): Message[] {
  if (body.contents !== undefined) return readGemini(body);
  if (body.input !== undefined) return readResponses(body.input);
  return body.messages.flatMap(path.endsWith("/messages") ? readAnthropic : readChat);
}

/** Consecutive messages of one role as one: results, and the parts of an answer, come one by one in some protocols. */
function joined(messages: Message[]): Message[] {
  const all: Message[] = [];
  for (const { role, pieces } of messages) {
    const last = all.at(-1);
    const goesOn = last?.role === role && role !== "system";
    if (goesOn) last.pieces.push(...pieces);
    else all.push({ role, pieces: [...pieces] });
  }
  return all;
}

const parsed = (text: unknown): unknown => {
  try {
    return JSON.parse(String(text));
  } catch {
    return undefined;
  }
};

function readChat({ role, content, tool_calls: calls = [], tool_call_id: id }: Json): Message[] {
  if (role === "tool") return [{ role: "user", pieces: [{ kind: "result", id, text: content }] }];
  const parts: Json[] = typeof content === "string" ? [{ type: "text", text: content }] : (content ?? []);
  const said = parts.map((part): Piece => {
    if (part.type === "text") return { kind: "text", text: part.text };
    return part.type === "image_url" || part.type === "file" || part.type === "input_audio"
      ? { kind: "file" }
      : { kind: "other" };
  });
  const called = calls.map(({ id, function: { arguments: text } }: Json) => ({
    kind: "call",
    id,
    input: parsed(text),
  }));
  // An answer with calls alone has no content, or an empty one.
  const pieces = called.length > 0 ? said.filter((piece) => piece.kind !== "text" || piece.text !== "") : said;
  return [{ role: role === "developer" ? "system" : role, pieces: [...pieces, ...called] }];
}

function readAnthropic({ role, content }: Json): Message[] {
  const blocks: Json[] = typeof content === "string" ? [{ type: "text", text: content }] : content;
  const pieces = blocks.map((block): Piece => {
    if (block.type === "text") return { kind: "text", text: block.text };
    if (block.type === "tool_use") return { kind: "call", id: block.id, input: block.input };
    if (block.type === "tool_result") return { kind: "result", id: block.tool_use_id, text: block.content };
    return { kind: block.type === "image" || block.type === "document" ? "file" : "thought" };
  });
  return [{ role, pieces }];
}

function readGemini({ contents, systemInstruction: system }: Json): Message[] {
  const messages = contents.map(({ role, parts }: Json): Message => {
    const pieces = parts.map((part: Json): Piece => {
      // Its calls have no ids: they are told by their order.
      if (part.functionCall) return { kind: "call", id: null, input: part.functionCall.args };
      if (part.functionResponse) return { kind: "result", id: null };
      if (part.thought || part.thoughtSignature) return { kind: "thought" };
      return part.text === undefined ? { kind: "file" } : { kind: "text", text: part.text };
    });
    return { role: role === "model" ? "assistant" : "user", pieces };
  });
  return system === undefined ? messages : [{ role: "system", pieces: [{ kind: "other" }] }, ...messages];
}

function readResponses(input: Json[]): Message[] {
  return input.flatMap((item): Message[] => {
    switch (item.type ?? "message") {
      case "function_call":
        return [{ role: "assistant", pieces: [{ kind: "call", id: item.call_id, input: parsed(item.arguments) }] }];
      case "function_call_output":
        return [{ role: "user", pieces: [{ kind: "result", id: item.call_id, text: item.output }] }];
      case "message":
        // OpenAI takes back what it has said, blank or not.
        if (item.id !== undefined) return [{ role: "assistant", pieces: [{ kind: "other" }] }];
        return readChat({
          role: item.role,
          content: Array.isArray(item.content)
            ? item.content.map((part: Json) => ({ ...part, type: /text$/.test(part.type) ? "text" : "file" }))
            : item.content,
        });
      default:
        return [{ role: "assistant", pieces: [{ kind: "thought" }] }];
    }
  });
}
