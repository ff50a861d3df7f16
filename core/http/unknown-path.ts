/** The error for a path that no route has. */
import { notFound, ServiceError } from "../lib/errors.ts";
import type { Exchange } from "./exchange.ts";

/** @param isSocket whether a WebSocket is served at the path, which needs a handshake */
export function unknownPathError({ method, path }: Exchange, isSocket: (path: string) => boolean): ServiceError {
  if (!isSocket(path)) return notFound(`no route for ${truncatePath(path)}`);
  if (method !== "GET" && method !== "HEAD")
    return new ServiceError("method_not_allowed", `${method.slice(0, 20)} is not allowed here: this is a WebSocket`, {
      headers: { allow: "GET" },
    });
  return new ServiceError("upgrade_required", "this is a WebSocket: connect with a client that speaks it", {
    headers: { upgrade: "websocket", connection: "upgrade", "sec-websocket-version": "13" },
  });
}

export const truncatePath = (path: string) => (path.length > 100 ? `${path.slice(0, 100)}...` : path);
