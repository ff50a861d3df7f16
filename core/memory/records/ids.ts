/** Ids that the service creates: UUIDs of version 7, which increase with time. */
import { randomUUID } from "node:crypto";
import { NUMBER_LIMIT } from "../../storage/encoding.ts";

const MESSAGE_ID = /^([0-9a-f]{8})-([0-9a-f]{4})-7([0-9a-f]{3})-[89ab]([0-9a-f]{3})-([0-9a-f]{2})[0-9a-f]{10}$/;

const hex = (value: number, digits: number) => value.toString(16).padStart(digits, "0");

/** @param time milliseconds since 1970 */
export function createId(time: number): string {
  const at = hex(time, 12);
  return `${at.slice(0, 8)}-${at.slice(8)}-7${randomUUID().slice(15)}`;
}

/**
 * The id of a message. It encodes the position of the message in its conversation, so that no row has to map the id to it.
 *
 * @param sequence below 2 ** 32
 */
export function createMessageId(time: number, sequence: number): string {
  const at = hex(time, 12);
  const number = hex(sequence, 8);
  const random = randomUUID();
  return `${at.slice(0, 8)}-${at.slice(8)}-7${number.slice(0, 3)}-${random[19]}${number.slice(3, 6)}-${number.slice(6)}${random.slice(26)}`;
}

/** The position that an id of `createMessageId` encodes; undefined for ids of any other format. */
export function parseMessageId(id: string): { time: number; sequence: number } | undefined {
  const match = MESSAGE_ID.exec(id);
  if (match === null) return undefined;
  const [, high, low, first, second, third] = match;
  const time = Number.parseInt(`${high}${low}`, 16);
  const sequence = Number.parseInt(`${first}${second}${third}`, 16);
  return time < NUMBER_LIMIT ? { time, sequence } : undefined;
}
