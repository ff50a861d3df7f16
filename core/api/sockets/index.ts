/** The sockets table: every WebSocket that the service offers. */

import { defaults } from "../../../generated/defaults.ts";
import type { LogsQuery } from "../../../generated/types.ts";
import { validators } from "../../../generated/validators.js";
import type { Service } from "../../app/service.ts";
import { requireValid, type Validator } from "../../http/decode.ts";
import type { Peer, SocketRoute } from "../../http/route.ts";
import { principalOf, userIdOf } from "../../identity/principal.ts";
import { invalid, messageOf, ServiceError } from "../../lib/errors.ts";
import { isObject } from "../../lib/is-object.ts";
import type { Text } from "../../lib/serialized.ts";
import { findLines, type LogEntry, type LogFilter, matchesEntry, mayMatch } from "../../observability/log-line.ts";
import type { EntityType } from "../../observability/span.ts";
import { openaiErrors } from "../../openai/errors.ts";
import { openResponsesSocket } from "../../openai/socket.ts";
import { isVisible, type SpanNews, visibleOwner } from "../../traces/traces.ts";
import { parseLogFilter } from "../routes/log-filter.ts";
import type { LogNews } from "./log-news.ts";

// `/ws/observability` and below: spans as they start and end, and log lines.

const ENTITY_TYPES: readonly EntityType[] = ["agent", "workflow", "tool"];
const MAX_ID_LENGTH = 256;

type Query = Readonly<Record<string, string>>;

interface Wanted {
  entityId: string | undefined;
  entityType: string | undefined;
}

/** @throws ServiceError `invalid_input` */
function parseWanted({ entityId, agentId, entityType }: Query): Wanted {
  const id = entityId ?? agentId;
  if (id !== undefined && (id === "" || id.length > MAX_ID_LENGTH)) {
    throw invalid(`entityId must be 1 to ${MAX_ID_LENGTH} characters`);
  }
  if (entityType !== undefined && !ENTITY_TYPES.includes(entityType as EntityType)) {
    throw invalid(`entityType must be one of ${ENTITY_TYPES.join(", ")}`);
  }
  return { entityId: id, entityType };
}

const OBSERVABILITY_SOCKET: SocketRoute<Service> = {
  operation: "sockets.observability",
  path: "/ws/observability/**",
  group: "observability",
  summary: "Spans as they begin and end, and lines of the log",
  query: {
    entityId: "Only what is the work of this agent, workflow or tool. `agentId` is the same.",
    entityType: "Only what is the work of such a one: `agent`, `workflow` or `tool`.",
  },
  check(asked, { isolated }) {
    parseWanted(asked.query);
    principalOf(asked, isolated);
  },
  open(peer, service) {
    const wanted = parseWanted(peer.query);
    const owner = visibleOwner(principalOf(peer, service.isolated));
    greet(peer, wanted);
    const spans = service.traces.news.follow(peer, (news) => spanFor(news, wanted, owner));
    const lines = service.logNews.follow(peer, (news) => lineFor(news, wanted, owner));
    return {
      message: (text) => void peer.send(JSON.stringify(answerTo(text))),
      drained() {
        spans.wake();
        lines.wake();
      },
      close() {
        spans.stop();
        lines.stop();
      },
    };
  },
};

function greet(peer: Peer, wanted: Wanted): void {
  const data = { message: "connected", ...wanted, timestamp: new Date().toISOString() };
  peer.send(JSON.stringify({ type: "CONNECTION_SUCCESS", success: true, data }));
}

/** The message of a span for a follower. A span belongs to the entity that did the work, whoever called that entity. */
function spanFor(news: SpanNews, wanted: Wanted, owner: string | undefined): Text | null {
  const { id, type } = news.span.entity;
  return isWanted(wanted, type, id) && isVisible(owner, news.userId) ? news.text : null;
}

/** The message of a log line for a follower. Lines that the service logs outside of runs belong to no entity and no user. */
function lineFor(news: LogNews, wanted: Wanted, owner: string | undefined): Text | null {
  const { "entity.id": id, "entity.type": type, userId = null } = news.record.attributes;
  if (!isWanted(wanted, type, id)) return null;
  if (owner === undefined) return news.text;
  return id !== undefined && isVisible(owner, userId as string | null) ? news.text : null;
}

const isWanted = ({ entityId, entityType }: Wanted, type: unknown, id: unknown): boolean =>
  (entityId === undefined || entityId === id) && (entityType === undefined || entityType === type);

function answerTo(text: string): object {
  switch (messageType(text)) {
    case "PING":
      return { type: "PONG", success: true };
    case "SUBSCRIBE":
      return { type: "SUBSCRIPTION_SUCCESS", success: true, data: { subscribed: true } };
    default:
      return { type: "ERROR", success: false, error: 'message must be JSON such as {"type":"PING"}' };
  }
}

function messageType(text: string): unknown {
  try {
    return (JSON.parse(text) as { type?: unknown } | null)?.type;
  } catch {
    return undefined;
  }
}

/* `/ws/logs`: lines of the log as they are written. */

/** Most characters of the lines sent at the start, however many are requested: all of them wait in memory for a slow peer. */
const MAX_INITIAL_CHARACTERS = 1024 * 1024;

/** @throws ServiceError `invalid_input` */
function parseQuery(given: object): { filter: LogFilter; limit: number } {
  // A copy, because the validation converts strings to numbers in place.
  const query = { ...given } as LogsQuery;
  requireValid(validators.LogsQuery as Validator, query);
  return { filter: parseLogFilter(query), limit: query.limit ?? defaults.LogsQuery.limit };
}

const LOG_SOCKET: SocketRoute<Service> = {
  operation: "sockets.logs",
  path: "/ws/logs",
  group: "observability",
  summary: "Lines of the log as they are written",
  query: {
    level: "Only lines of this level and graver ones.",
    agentId: "Only lines of runs of this agent; `conversationId`, `workflowId`, `executionId` and `tool` likewise.",
    search: "Only lines with these letters in the message or a bound value, in any case.",
    since: "Only lines written at this time or later (ISO 8601); `until` likewise.",
    limit: "Lines that are sent at the beginning, at most 1000 and 1 Mi characters. Default 100.",
  },
  check(asked, { isolated }) {
    parseQuery(asked.query);
    principalOf(asked, isolated);
  },
  open(peer, { logs, logNews, isolated }) {
    const { userId, isolated: own } = principalOf(peer, isolated);
    const bounded = (filter: LogFilter): LogFilter => (own ? { ...filter, owner: userId } : filter);
    const wanted = parseQuery(peer.query);
    let filter = bounded(wanted.filter);
    const { entries } = findLines(logs, filter, wanted.limit);
    peer.send(initialMessage(entries));
    const lines = logNews.follow(peer, (news) => updateFor(news, filter));
    return {
      message(text) {
        try {
          filter = bounded(parseQuery(filterIn(text)).filter);
        } catch (error) {
          peer.send(JSON.stringify({ type: "ERROR", success: false, error: messageOf(error) }));
        }
      },
      drained: () => lines.wake(),
      close: () => lines.stop(),
    };
  },
};

/**
 * The first message, with lines in the order in which they were written: later lines are appended.
 *
 * @param entries newest first
 */
function initialMessage(entries: readonly LogEntry[]): string {
  const logs: string[] = [];
  let left = MAX_INITIAL_CHARACTERS;
  for (const entry of entries) {
    const text = JSON.stringify(entry);
    left -= text.length;
    if (left < 0) break;
    logs.push(text);
  }
  return `{"type":"initial","logs":[${logs.reverse().join(",")}],"timestamp":"${new Date().toISOString()}"}`;
}

const updateFor = (news: LogNews, filter: LogFilter): Text | null =>
  mayMatch(news.line, filter) && matchesEntry(news.entry, filter) ? news.update : null;

/** @throws ServiceError `invalid_input` for anything but `{"type": "updateFilter", "filter": {...}}` */
function filterIn(text: string): object {
  try {
    const { type, filter } = JSON.parse(text) as { type?: unknown; filter?: unknown };
    if (type === "updateFilter" && isObject(filter)) return filter;
  } catch {
    // Invalid JSON is reported below.
  }
  throw new ServiceError(
    "invalid_input",
    'message must be JSON such as {"type":"updateFilter","filter":{"level":"warn"}}',
  );
}

// OpenAI's Responses over a WebSocket, at the path of `POST /v1/responses`.

export const RESPONSES_SOCKET: SocketRoute<Service> = {
  operation: "openai.responsesSocket",
  path: "/v1/responses",
  group: "execution",
  summary: "Responses, one after the other: each message `response.create` is answered with its events",
  errors: openaiErrors,
  check(asked, { isolated }) {
    principalOf(asked, isolated);
  },
  open: openResponsesSocket,
};

export const SOCKETS: readonly SocketRoute<Service>[] = [
  {
    operation: "sockets.echo",
    path: "/ws",
    group: "observability",
    summary: "Connection test: every message comes back",
    open(peer) {
      const data = {
        message: "connected",
        timestamp: new Date().toISOString(),
        authenticated: peer.caller.kind !== "nobody",
        userId: userIdOf(peer.user) ?? undefined,
      };
      peer.send(JSON.stringify({ type: "CONNECTION_TEST", success: true, data }));
      return {
        message(text) {
          peer.send(echoText(text));
        },
      };
    },
  },
  LOG_SOCKET,
  OBSERVABILITY_SOCKET,
  RESPONSES_SOCKET,
];

function echoText(text: string): string {
  try {
    JSON.parse(text);
    return `{"type":"ECHO","success":true,"data":${text}}`;
  } catch (error) {
    return JSON.stringify({ type: "ERROR", success: false, error: `message is not valid JSON: ${messageOf(error)}` });
  }
}
