/** The values of an index's rows. */
import type { MessagePlace } from "./semantic.ts";

export interface VectorRow extends MessagePlace {
  readonly vector: Float32Array;
}

/** The vector is base64 of its 32-bit floats, little-endian: exact, and a third of the size of decimal digits. */
export function writeVector({ owner, conversation, message, vector }: VectorRow): string {
  const bytes = Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength);
  return JSON.stringify([owner, conversation, message, bytes.toString("base64")]);
}

export function readVector(value: string): VectorRow {
  const [owner, conversation, message, base64] = JSON.parse(value) as [string, string, string, string];
  // Copied, since the decoded bytes may begin at any offset of a shared buffer, and floats need an aligned one.
  const bytes = new Uint8Array(Buffer.from(base64, "base64"));
  return { owner, conversation, message, vector: new Float32Array(bytes.buffer, 0, bytes.byteLength >> 2) };
}

/** A text to be embedded; or, for vectors outside of the store, a message or a whole conversation to be deleted. */
export type Waiting =
  | (MessagePlace & { readonly kind: "embed"; readonly text: string })
  | (MessagePlace & { readonly kind: "delete" })
  | { readonly kind: "deleteConversation"; readonly owner: string; readonly conversation: string };

export const writeWaiting = (waiting: Waiting): string => JSON.stringify(waiting);
export const readWaiting = (value: string): Waiting => JSON.parse(value) as Waiting;
