/** How rows outside of a conversation refer to it. */
import { decodeNumber, encodeNumber } from "../../storage/encoding.ts";
import type { MessagePlace } from "../semantic/semantic.ts";

export interface Target {
  readonly memory: string;
  readonly number: number;
  readonly userId: string;
}

/** The semantic index's reference to a message: the internal number of the conversation, and the position in it. */
export const messagePlace = (target: Target, position: string): MessagePlace => ({
  owner: target.userId,
  conversation: indexName(target.number),
  message: position,
});

export const indexName = (conversation: number): string => encodeNumber(conversation);
export const conversationNumber = (name: string): number => decodeNumber(name);
