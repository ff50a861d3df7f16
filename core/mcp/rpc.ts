/** JSON-RPC errors for the cases that the SDK does not handle. */
import type { RawReply } from "../http/route.ts";

export const INTERNAL = -32603;
const PARSE_ERROR = -32700;

export const rpcError = (id: string | number | null, code: number, message: string): string =>
  JSON.stringify({ jsonrpc: "2.0", id, error: { code, message } });

/** The id of a request; null where the message has none. */
export function rpcId(message: unknown): string | number | null {
  const { id } = (message ?? {}) as { id?: unknown };
  return typeof id === "string" || typeof id === "number" ? id : null;
}

/** The reply to a body that is not JSON. */
export const parseError = (problem: string): RawReply => ({
  status: 400,
  headers: ["content-type", "application/json"],
  body: rpcError(null, PARSE_ERROR, problem),
});
