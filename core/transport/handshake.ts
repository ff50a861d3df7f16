/** Recognizes WebSocket handshakes, and chooses the subprotocol. */
import { SUBPROTOCOL } from "../http/subprotocols.ts";

const KEY = /^[A-Za-z0-9+/]{22}==$/;

/**
 * Whether a request is a well-formed handshake (RFC 6455, 4.2.1). One with a body is not: its bytes could be taken for frames.
 *
 * @param header returns a header by its lower-case name, an empty string when it is absent
 */
export function isHandshake(method: string, header: (name: string) => string): boolean {
  return (
    method === "GET" &&
    header("upgrade").toLowerCase() === "websocket" &&
    /(?:^|,)\s*upgrade\s*(?:,|$)/i.test(header("connection")) &&
    header("sec-websocket-version") === "13" &&
    KEY.test(header("sec-websocket-key")) &&
    (header("content-length") === "" || header("content-length") === "0") &&
    header("transfer-encoding") === ""
  );
}

/**
 * The first offered subprotocol; empty when none is valid. The messages are the same under any name, but browsers fail when they offer
 * subprotocols and the reply names none.
 */
export function chooseProtocol(offered: string): string {
  const first = offered.split(",", 1)[0]!.trim();
  return SUBPROTOCOL.test(first) ? first : "";
}
