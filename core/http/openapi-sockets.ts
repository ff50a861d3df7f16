/** WebSockets in the OpenAPI document. OpenAPI cannot describe them, so they are listed in an extension (`x-websockets`). */
import type { SocketRoute } from "./socket.ts";

type DocumentedSocket = Pick<SocketRoute<never>, "operation" | "path" | "summary" | "query">;

export function describeSockets(sockets: readonly DocumentedSocket[]): object[] {
  return sockets.map(({ operation, path, summary, query = {} }) => ({
    operationId: operation,
    path: path.replace(/:([^/]+)/g, "{$1}"),
    summary,
    parameters: [
      ...[...path.matchAll(/:([^/]+)/g)].map(([, name]) => ({ name, in: "path", required: true })),
      ...Object.entries(query).map(([name, description]) => ({ name, in: "query", description })),
    ],
  }));
}
