/** Messages as they are stored: a JSON text that begins with the role and the id. */
import type { Message } from "../../../generated/types.ts";
import { invalid } from "../../lib/errors.ts";
import { isoTime } from "../../lib/iso-time.ts";
import { joinTexts, type Text } from "../../lib/serialized.ts";
import { NUMBER_LIMIT } from "../../storage/encoding.ts";
import type { NewMessage } from "../memory.ts";
import { searchableText } from "./searchable-text.ts";

const ROLES: ReadonlySet<string> = new Set(["system", "user", "assistant", "tool"]);

/** The start of a row. Role and id come first, so that both can be read without parsing. */
export const roleHead = (role: string) => `{"role":${JSON.stringify(role)},`;

/** A message that has been validated and serialized, ready to be saved. */
export interface PreparedMessage {
  readonly role: string;
  readonly id: string | undefined;
  /** Date from the client in milliseconds since 1970; undefined for a place after all stored messages. */
  readonly createdAt: number | undefined;
  /** Time on the service's clock in milliseconds since 1970; undefined for the time of storing. */
  readonly saidAt: number | undefined;
  readonly named?: ((id: string) => void) | undefined;
  /** The other members of the JSON object, as text. */
  readonly members: string;
  /** The text for semantic search; empty in a memory without it. */
  readonly search: string;
}

/** @throws ServiceError `invalid_input` for a message that cannot be stored */
export function prepareMessage(message: NewMessage, searched: boolean): PreparedMessage {
  const { role, id, parts, content, metadata = {} } = message;
  if (!ROLES.has(role)) throw invalid(`message.role must be one of ${[...ROLES].join(", ")}`);
  if (parts === undefined && content === undefined) throw invalid("message.parts or message.content is required");
  if (id === "") throw invalid("message.id must not be empty");
  return {
    role,
    id,
    createdAt: message.createdAt === undefined ? undefined : parseTime(message.createdAt),
    saidAt: message.saidAt,
    named: message.named,
    members: JSON.stringify({ parts, content, metadata }).slice(1, -1),
    search: searched ? searchableText(message) : "",
  };
}

export function messageText({ role, members }: PreparedMessage, id: string, time: number): string {
  const createdAt = isoTime(time);
  return `${roleHead(role)}"id":${JSON.stringify(id)},${members},"createdAt":"${createdAt}"}`;
}

/** The id of the message in a row. */
export function idOf(text: string): string {
  const start = text.indexOf(',"id":') + 6;
  let end = start + 1;
  while (text[end] !== '"') end += text[end] === "\\" ? 2 : 1;
  return JSON.parse(text.slice(start, end + 1)) as string;
}

export const parseMessage = (text: string): Message => JSON.parse(text) as Message;

/** @param texts JSON texts with commas between them, in pieces */
export const parseMessages = (texts: readonly Text[]): Message[] => JSON.parse(`[${joinTexts(texts)}]`) as Message[];

function parseTime(createdAt: string): number {
  const time = Date.parse(createdAt);
  if (time >= 0 && time < NUMBER_LIMIT) return time;
  throw invalid("message.createdAt must be an ISO 8601 date from 1970 on");
}
