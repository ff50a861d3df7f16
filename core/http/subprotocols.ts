/** The subprotocols that a WebSocket handshake offers. */
/** Name of a subprotocol. */
export const SUBPROTOCOL = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/** Whether a value of `Sec-WebSocket-Protocol` is valid (RFC 6455, 4.1): tokens without repetition. Empty when none is offered. */
export function isProtocolList(value: string): boolean {
  if (value === "") return true;
  const names = value.split(",").map((name) => name.trim());
  return new Set(names).size === names.length && names.every((name) => SUBPROTOCOL.test(name));
}
