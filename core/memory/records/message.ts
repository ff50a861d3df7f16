/** A message as it stands in its row. */
import type { Message } from "../../../generated/types.ts";
import { invalid } from "../../lib/errors.ts";
import { joinTexts, type Text } from "../../lib/serialized.ts";
import { NUMBER_LIMIT } from "../../storage/encoding.ts";
import type { NewMessage } from "../memory.ts";
import { timeText } from "./conversation.ts";
import { searchableText } from "./searchable-text.ts";

const ROLES: ReadonlySet<string> = new Set(["system", "user", "assistant", "tool"]);

/** Every row begins with its role and id, so that both can be told without parsing. */
export const roleHead = (role: string) => `{"role":${JSON.stringify(role)},`;

/** A message that was checked and serialised before it waits for its turn. */
export interface PreparedMessage {
  readonly role: string;
  readonly id: string | undefined;
  /** Milliseconds since 1970, as its client says; undefined: after all that is there. */
  readonly createdAt: number | undefined;
  /** Milliseconds since 1970 by our clock; undefined: when it is stored. */
  readonly saidAt: number | undefined;
  /** Members of the JSON object beside those above. */
  readonly members: string;
  /** What is searched by meaning; empty where nothing is. */
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
    createdAt: message.createdAt === undefined ? undefined : timeOf(message.createdAt),
    saidAt: message.saidAt,
    members: JSON.stringify({ parts, content, metadata }).slice(1, -1),
    search: searched ? searchableText(message) : "",
  };
}

export function messageText({ role, members }: PreparedMessage, id: string, time: number): string {
  const createdAt = timeText(time);
  return `${roleHead(role)}"id":${JSON.stringify(id)},${members},"createdAt":"${createdAt}"}`;
}

/** Whether the row holds the message of that id. */
export function hasId(text: string, id: string): boolean {
  const start = text.indexOf(',"id":') + 6;
  return text.startsWith(`${JSON.stringify(id)},`, start);
}

export const parseMessage = (text: string): Message => JSON.parse(text) as Message;

/** @param texts JSON texts with commas between them, in pieces */
export const parseMessages = (texts: readonly Text[]): Message[] => JSON.parse(`[${joinTexts(texts)}]`) as Message[];

function timeOf(createdAt: string): number {
  const time = Date.parse(createdAt);
  if (time >= 0 && time < NUMBER_LIMIT) return time;
  throw invalid("message.createdAt must be an ISO 8601 date from 1970 on");
}
