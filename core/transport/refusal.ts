/** Raw replies for what never becomes a request: refused by a parser, before there is a route. */

const REFUSALS: Record<number, { reason: string; error: string }> = {
  400: { reason: "Bad Request", error: "the request is not valid HTTP/1.1" },
  408: { reason: "Request Timeout", error: "the request took too long to arrive" },
  413: { reason: "Payload Too Large", error: "the request is too large" },
  417: { reason: "Expectation Failed", error: "Expect: only 100-continue is understood" },
  431: { reason: "Request Header Fields Too Large", error: "the head of the request is too large" },
};

/** A whole HTTP/1.1 reply with the error envelope that ends its connection; `headOnly`: what HEAD gets of it. */
export function rawRefusal(status: number, headOnly = false): string {
  const { reason, error } = REFUSALS[status] ?? REFUSALS[400]!;
  const body = refusalBody(error);
  return (
    `HTTP/1.1 ${status} ${reason}\r\nconnection: close\r\ncontent-type: application/json\r\n` +
    `content-length: ${Buffer.byteLength(body)}\r\n\r\n${headOnly ? "" : body}`
  );
}

/** The envelope of a refusal. */
export function refusalBody(error: string): string {
  return JSON.stringify({ success: false, error });
}

/** The usual words for a status. */
export function refusalText(status: number): string {
  return (REFUSALS[status] ?? REFUSALS[400]!).error;
}
