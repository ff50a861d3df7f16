/** Sends a request to a foreign MCP server, and once more where the connection was lost before the server can have seen it. */
import { ToolUnavailable } from "../tools/tool.ts";
import type { McpConnection } from "./connection.ts";

/** The server may have seen the request. */
export class ConnectionLost extends Error {
  override readonly name = "ConnectionLost";
}

/** Where requests get their connection. */
export interface ConnectionSource {
  /** @throws ToolUnavailable when the server cannot be reached; the reason of `signal` once it aborts */
  take(signal: AbortSignal): Promise<McpConnection>;
  /** Text without the tokens of the user whose connection it is. */
  readonly hide?: (text: string) => string;
  /** The connection is of no use any more. */
  lost(connection: McpConnection, reason: string): void;
}

/** @throws what `take` throws; Error with the reason when the request fails; the reason of `signal` once it aborts */
export async function withConnection<T>(
  server: string,
  source: ConnectionSource,
  signal: AbortSignal,
  request: (connection: McpConnection) => Promise<T>,
): Promise<T> {
  const { isMcpConnectionLost, isUnsent, failureReason } = await import("./connection.ts");
  for (let tried = 0; ; tried++) {
    const connection = await source.take(signal);
    try {
      return await request(connection);
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof ToolUnavailable) throw error;
      const reason = failureReason(error, source.hide);
      if (!isMcpConnectionLost(error)) throw new Error(`MCP server "${server}": ${reason}`, { cause: error });
      source.lost(connection, reason);
      if (tried > 0 || !isUnsent(error))
        throw new ConnectionLost(`MCP server "${server}" was lost during the call: ${reason}`, { cause: error });
    }
  }
}
