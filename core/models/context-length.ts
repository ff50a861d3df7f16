/**
 * Recognises the errors by which providers say that a prompt is too long for the model. They have no common code: most providers say it
 * only in the message.
 */

/** Codes, types or messages of such errors, from OpenAI, Anthropic, Gemini, Mistral, Cohere, xAI, Bedrock, vLLM, llama.cpp and others. */
const WORDS: readonly RegExp[] = [
  /context[_ -]?length[_ -]?exceeded|exceed(?:s|ed)?[_ -](?:the[_ -])?context[_ -]?(?:size|limit)|tokens[_ -]limit[_ -]reached/i,
  /(?:maximum|available|model'?s) context (?:length|size|window)/i,
  /exceeds? (?:the )?(?:\w+ ){0,2}(?:context (?:length|window|size|limit)|maximum number of (?:input )?tokens)/i,
  /(?:prompt|input|request) (?:is|are) too (?:long|large)\b/i,
  /longer than the (?:maximum )?(?:model|context) length/i,
  /(?:maximum|max) (?:prompt|input) length/i,
  /too large for model with \d+ maximum context/i,
  /reduce the length of the (?:messages|prompt|input)/i,
  /too many tokens: total number of tokens in the prompt/i,
];

/** The fields of errors in which providers and the AI SDK describe them. */
const FIELDS = ["code", "type", "status", "message", "responseBody"] as const;
const NESTED = ["error", "data"] as const;
const MAX_TEXT = 16 * 1024;
const MAX_DEPTH = 4;

/** @param error of a provider, or an error event within its stream; its causes are ignored */
export function saysContextLength(error: Record<string, unknown>, depth = 0): boolean {
  for (const field of FIELDS) {
    const text = error[field];
    if (typeof text !== "string") continue;
    const beginning = text.slice(0, MAX_TEXT);
    if (WORDS.some((pattern) => pattern.test(beginning))) return true;
  }
  if (depth === MAX_DEPTH) return false;
  return NESTED.some((field) => {
    const inner = error[field];
    return (
      typeof inner === "object" && inner !== null && saysContextLength(inner as Record<string, unknown>, depth + 1)
    );
  });
}
