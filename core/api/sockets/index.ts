/** The sockets table: every WebSocket that the service offers. */
import type { Service } from "../../app/service.ts";
import type { SocketRoute } from "../../http/route.ts";
import { principalOf, userIdOf } from "../../identity/principal.ts";
import { messageOf } from "../../lib/errors.ts";
import { openaiErrors } from "../../openai/errors.ts";
import { openResponsesSocket } from "../../openai/socket.ts";
import { LOG_SOCKET } from "./logs.ts";
import { OBSERVABILITY_SOCKET } from "./observability.ts";

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
