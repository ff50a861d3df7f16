/** The sockets table: every WebSocket that the service offers. */

import type { Service } from "../../app/service.ts";
import type { SocketRoute } from "../../http/socket.ts";
import { userIdOf } from "../../identity/user.ts";
import { messageOf } from "../../lib/errors.ts";
import { LOG_SOCKET } from "./logs.ts";
import { OBSERVABILITY_SOCKET } from "./observability.ts";
import { RESPONSES_SOCKET } from "./responses.ts";

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
