/** Converts query parameters and bodies to the input of a memory: applies defaults, parses dates and roles, drops unknown keys. */
import { defaults } from "../../generated/defaults.ts";
import type {
  ConversationsQuery,
  MessageInput,
  MessagesQuery,
  SaveMessageEntry,
  SaveMessagesRequest,
} from "../../generated/types.ts";
import { actingUser, type Principal } from "../identity/principal.ts";
import { invalid, notFound } from "../lib/errors.ts";
import { parseInstant } from "../lib/instant.ts";
import type { ConversationListQuery, MessageQuery, NewMessage } from "./memory.ts";

const LIST = defaults.ConversationsQuery;
const ROLES: ReadonlySet<string> = new Set(["system", "user", "assistant", "tool"]);
const MAX_ID_CHARACTERS = 256;
const MAX_PROBLEMS = 20;

export function conversationIdOf(params: Record<string, string>): string {
  const id = params.conversationId!;
  // The schema does not allow longer ids for new conversations.
  if (id.length > MAX_ID_CHARACTERS) throw notFound("no conversation has so long an id");
  return id;
}

export function listQuery({
  userId,
  resourceId,
  limit = LIST.limit,
  offset = LIST.offset,
  orderBy = LIST.orderBy,
  orderDirection = LIST.orderDirection,
}: ConversationsQuery): ConversationListQuery {
  return { userId, resourceId, limit, offset, orderBy, orderDirection: parseDirection(orderDirection) };
}

function parseDirection(text: string): "ASC" | "DESC" {
  const direction = text.toUpperCase();
  if (direction === "ASC" || direction === "DESC") return direction;
  throw invalid("orderDirection must be ASC or DESC");
}

export const messageQuery = ({
  limit = defaults.MessagesQuery.limit,
  before,
  after,
  beforeId,
  afterId,
  roles,
  userId,
}: MessagesQuery): MessageQuery => ({
  limit,
  before: before === undefined ? before : parseInstant("before", before),
  after: after === undefined ? after : parseInstant("after", after),
  beforeId,
  afterId,
  roles: roles === undefined ? roles : parseRoles(roles),
  userId,
});

function parseRoles(text: string): string[] {
  const roles = new Set(text.split(",").map((role) => role.trim()));
  for (const role of roles) {
    if (!ROLES.has(role)) throw invalid(`roles must be a list of ${[...ROLES].join(", ")}, separated by commas`);
  }
  return [...roles];
}

interface SaveEntry {
  conversationId: string;
  userId: string;
  message: NewMessage;
}

/**
 * The entries with their conversation and user, which default to those of the body.
 *
 * @throws ServiceError `invalid_input` that lists everything that is missing
 */
export function saveEntries(body: SaveMessagesRequest, principal: Principal): SaveEntry[] {
  const problems: string[] = [];
  // Checked even if every entry names a user itself: an isolated caller may not name another one anywhere.
  actingUser(principal, body.userId);
  const entries = body.messages.map((entry, index): SaveEntry => {
    const at = `messages[${index}]`;
    const conversationId = entry.conversationId ?? body.conversationId;
    const userId = actingUser(principal, entry.userId ?? body.userId);
    if (conversationId === undefined) problems.push(missing(at, "conversationId"));
    if (userId === undefined) problems.push(missing(at, "userId"));
    return { conversationId: conversationId!, userId: userId!, message: newMessage(entry, at) };
  });
  if (problems.length > 0) throw invalid(problems.slice(0, MAX_PROBLEMS).join("; "));
  return entries;
}

const missing = (at: string, key: string) => `${at}.${key} is required, there or in the body`;

function newMessage(entry: SaveMessageEntry, at: string): NewMessage {
  const wrapped = "message" in entry;
  const { id, role, parts, content, metadata, createdAt }: MessageInput = wrapped ? entry.message : entry;
  const message: NewMessage = { role };
  if (id !== undefined) message.id = id;
  if (parts !== undefined) message.parts = parts;
  if (content !== undefined) message.content = content;
  if (metadata !== undefined) message.metadata = metadata;
  if (createdAt !== undefined) {
    const field = `${at}${wrapped ? ".message" : ""}.createdAt`;
    message.createdAt = new Date(parseInstant(field, createdAt)).toISOString();
  }
  return message;
}
