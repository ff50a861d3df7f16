/** The error for a port that cannot be bound. */
import { bracketed } from "../lib/host-name.ts";

const REASONS: Record<string, string | undefined> = {
  EADDRINUSE: "the port is in use by another process: -p or server.port names another",
  EACCES: "no permission to bind the port",
  EADDRNOTAVAIL: "no interface of this machine has the address",
  ENOTFOUND: "the host name does not resolve",
};

/** `cannot listen on 127.0.0.1:3141: the port is in use by another process`, with the system's code in `code`. */
export function listenError(at: { host: string; port: number }, code = "EADDRINUSE", cause?: unknown): Error {
  const host = bracketed(at.host);
  const reason = REASONS[code] ?? code;
  const error = new Error(`cannot listen on ${host}:${at.port}: ${reason}`, { cause });
  return Object.assign(error, { code });
}
