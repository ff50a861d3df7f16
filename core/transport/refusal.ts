/** Raw replies to requests that a parser refuses before there is a route. */
const REFUSALS: Record<number, { reason: string; error: string }> = {
  400: { reason: "Bad Request", error: "the request is not valid HTTP/1.1" },
  408: { reason: "Request Timeout", error: "the request took too long to arrive" },
  413: { reason: "Payload Too Large", error: "the request is too large" },
  417: { reason: "Expectation Failed", error: "Expect: only 100-continue is understood" },
  431: { reason: "Request Header Fields Too Large", error: "the head of the request is too large" },
};

/** A whole HTTP/1.1 reply with the error envelope, which closes the connection. `headOnly` omits the body, for HEAD. */
export function rawRefusal(status: number, headOnly = false): string {
  const { reason, error } = REFUSALS[status] ?? REFUSALS[400]!;
  const body = refusalBody(error);
  return (
    `HTTP/1.1 ${status} ${reason}\r\nconnection: close\r\ncontent-type: application/json\r\n` +
    `content-length: ${Buffer.byteLength(body)}\r\n\r\n${headOnly ? "" : body}`
  );
}

/** The error envelope as JSON. */
export function refusalBody(error: string): string {
  return JSON.stringify({ success: false, error });
}

/** The error message for a status. */
export function refusalText(status: number): string {
  return (REFUSALS[status] ?? REFUSALS[400]!).error;
}
