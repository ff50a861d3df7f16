/** Which requests ask for a WebSocket, and for which subprotocol. */

const KEY = /^[A-Za-z0-9+/]{22}==$/;
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/**
 * Whether a request is a well-formed handshake (RFC 6455, 4.2.1). One with a body is none: its bytes could be taken for frames.
 *
 * @param header gives a header by its lower-case name, an empty string when it is absent
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

/** The first of those offered: what is spoken is the same by any name, and browsers fail without an answer. Else empty. */
export function chooseProtocol(offered: string): string {
  const first = offered.split(",", 1)[0]!.trim();
  return TOKEN.test(first) ? first : "";
}
