/** How many tokens common models accept, prompt and answer together. The manifest's `contextWindow` takes precedence. */

/** Windows by prefix of the model's name; the longest matching prefix counts. As documented by the providers on 2026-11-22. */
const WINDOWS: Readonly<Record<string, number>> = {
  "gpt-3.5-turbo": 16_385,
  "gpt-4": 8_192,
  "gpt-4-32k": 32_768,
  "gpt-4-turbo": 128_000,
  "gpt-4-1106": 128_000,
  "gpt-4-0125": 128_000,
  "gpt-4o": 128_000,
  "gpt-4.1": 1_047_576,
  "gpt-4.5": 128_000,
  "gpt-5": 400_000,
  "gpt-oss": 131_072,
  "chatgpt-4o": 128_000,
  o1: 200_000,
  "o1-mini": 128_000,
  "o1-preview": 128_000,
  o3: 200_000,
  o4: 200_000,
  "claude-2": 100_000,
  "claude-2.1": 200_000,
  "claude-3": 200_000,
  "claude-haiku": 200_000,
  "claude-sonnet": 200_000,
  "claude-opus": 200_000,
  "gemini-1.5-flash": 1_048_576,
  "gemini-1.5-pro": 2_097_152,
  "gemini-2": 1_048_576,
  "gemini-3": 1_048_576,
  "mistral-large": 131_072,
  "mistral-medium": 131_072,
  "mistral-small": 131_072,
  "codestral-2501": 262_144,
  "deepseek-chat": 65_536,
  "deepseek-reasoner": 65_536,
  "grok-3": 131_072,
  "grok-4": 256_000,
  "command-r": 128_000,
  "command-a": 256_000,
};

/** The vendor before the name of the model, as in `openrouter/anthropic/claude-...` or Bedrock's `us.anthropic.claude-...`. */
const VENDOR = /^(?:.*\/)?(?:[a-z]+\.)*/;

/** The context window of a model; undefined if it is not in the table. */
export function knownContextWindow(model: string): number | undefined {
  const name = model.toLowerCase().replace(VENDOR, "");
  let found: string | undefined;
  for (const beginning of Object.keys(WINDOWS))
    if (name.startsWith(beginning) && beginning.length > (found?.length ?? 0)) found = beginning;
  return found === undefined ? undefined : WINDOWS[found];
}
