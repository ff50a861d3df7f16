/** `/ws/observability` and below: spans as they start and end, and log lines. */
import type { Service } from "../../app/service.ts";
import type { Peer, SocketRoute } from "../../http/route.ts";
import { principalOf } from "../../identity/principal.ts";
import { invalid } from "../../lib/errors.ts";
import type { Text } from "../../lib/serialized.ts";
import type { EntityType } from "../../observability/span.ts";
import { isVisible, type SpanNews, visibleOwner } from "../../traces/traces.ts";
import type { LogNews } from "./log-news.ts";

const ENTITY_TYPES: readonly EntityType[] = ["agent", "workflow", "tool"];
const MAX_ID_LENGTH = 256;

type Query = Readonly<Record<string, string>>;

interface Wanted {
  entityId: string | undefined;
  entityType: string | undefined;
}

/** @throws ServiceError `invalid_input` */
function parseQuery({ entityId, agentId, entityType }: Query): Wanted {
  const id = entityId ?? agentId;
  if (id !== undefined && (id === "" || id.length > MAX_ID_LENGTH)) {
    throw invalid(`entityId must be 1 to ${MAX_ID_LENGTH} characters`);
  }
  if (entityType !== undefined && !ENTITY_TYPES.includes(entityType as EntityType)) {
    throw invalid(`entityType must be one of ${ENTITY_TYPES.join(", ")}`);
  }
  return { entityId: id, entityType };
}

export const OBSERVABILITY_SOCKET: SocketRoute<Service> = {
  operation: "sockets.observability",
  path: "/ws/observability/**",
  group: "observability",
  summary: "Spans as they begin and end, and lines of the log",
  query: {
    entityId: "Only what is the work of this agent, workflow or tool. `agentId` is the same.",
    entityType: "Only what is the work of such a one: `agent`, `workflow` or `tool`.",
  },
  check(asked, { isolated }) {
    parseQuery(asked.query);
    principalOf(asked, isolated);
  },
  open(peer, service) {
    const wanted = parseQuery(peer.query);
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
