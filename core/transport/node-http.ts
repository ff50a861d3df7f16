/**
 * `node:http` without its getters: an `import` of it reads them all, and since Node 22 one of them loads the whole of `fetch`. That would
 * cost each start 20 ms and 9 MB.
 */
import type * as http from "node:http";

export const { createServer, IncomingMessage, ServerResponse, STATUS_CODES, validateHeaderName, validateHeaderValue } =
  process.getBuiltinModule("node:http");
export type IncomingMessage = http.IncomingMessage;
export type ServerResponse = http.ServerResponse;
