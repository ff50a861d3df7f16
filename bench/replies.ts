/** Texts of requests, and checks of replies. */

/** 32 words, so that 32 deltas are one word each. */
export const WORDS = Array.from({ length: 32 }, (_, index) => `word${String(index).padStart(2, "0")}`).join(" ");
export const DELTAS = 32;

/** Parses the envelope and passes its data to `wrong`, which returns the problem. */
export function enveloped(wrong: (data: Record<string, unknown>) => string | null): (body: string) => string | null {
  return (body) => {
    const reply = JSON.parse(body) as { success: boolean; data: Record<string, unknown> };
    return reply.success === true ? wrong(reply.data) : `success is ${String(reply.success)}`;
  };
}

/** The JSON payloads in an event stream's `data:` lines; `[DONE]` stays text. */
export function eventsOf(body: string): Record<string, unknown>[] {
  const lines = body.split("\n").filter((line) => line.startsWith("data: "));
  return lines.map((line) => (line === "data: [DONE]" ? { type: "[DONE]" } : JSON.parse(line.slice(6))));
}
