/** The sockets table: every WebSocket that the service offers. */

import { defaults } from "../../../generated/defaults.ts";
import type { LogsQuery } from "../../../generated/types.ts";
import { validators } from "../../../generated/validators.js";
import type { Service } from "../../app/service.ts";
import { requireValid, type Validator } from "../../http/decode.ts";
import type { SocketRoute } from "../../http/route.ts";
import { principalOf, userIdOf } from "../../identity/principal.ts";
import { messageOf, ServiceError } from "../../lib/errors.ts";
import { isObject } from "../../lib/is-object.ts";
import type { Text } from "../../lib/serialized.ts";
import type { LogEntry } from "../../observability/log-line.ts";
import { findLines, type LogFilter, matchesEntry, mayMatch } from "../../observability/log-ring.ts";
import { openaiErrors } from "../../openai/errors.ts";
import { openResponsesSocket } from "../../openai/socket.ts";
import { parseLogFilter } from "../routes/log-filter.ts";
import type { LogNews } from "./log-news.ts";
import { OBSERVABILITY_SOCKET } from "./observability.ts";

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
