/** What the store should hold: conversations as one client knows them, and what a request makes of them. */

export type Role = "system" | "user" | "assistant";

export interface Stored {
  readonly role: Role;
  readonly text: string;
  /** Null: made by the server, any will do. */
  readonly id: string | null;
  /** Whether it was saved as `parts` or as `content`; null: made by the server. */
  readonly form: "parts" | "content" | null;
  /** A crash in the middle of a run may leave a beginning of the text. */
  readonly beginning?: boolean;
}

export interface Conversation {
  readonly userId: string;
  readonly resourceId: string;
  readonly title: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly working: string | null;
  /** In a shared conversation those of one client only. */
  readonly messages: readonly Stored[];
  /** Several clients write into it at once. Nobody changes anything but its messages. */
  readonly shared: boolean;
}

/** Conversations by id as they are afterwards; null: there is none. */
export type Outcome = ReadonlyMap<string, Conversation | null>;

export interface Operation {
  readonly name: string;
  readonly method: "POST" | "PATCH" | "DELETE";
  readonly path: string;
  readonly body?: unknown;
  /** How the reply must end when it is a stream. */
  readonly ends?: string;
  /** What a crash may leave instead of what was there before. The last is what an acknowledgement promises. */
  readonly outcomes: readonly Outcome[];
}

/** `random()` in [0, 1), the same for the same seed (mulberry32). */
export function createRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Which client wrote a text of a shared conversation. */
export const writerOf = (text: string): string => text.slice(0, Math.max(0, text.indexOf(".")));
