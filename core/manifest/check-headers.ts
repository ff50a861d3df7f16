/** Checks headers that the manifest adds to requests. */
import { type CheckContext, entriesOf } from "./check.ts";
import { HEADER_NAME } from "./check-server.ts";
import type { Path } from "./manifest.ts";

/** Valid header values (RFC 9110, section 5.5). Messages do not show the value: headers contain keys. */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Headers that the HTTP client sets itself: with another value the server would refuse the request. */
const FRAMING_HEADERS = new Set(["content-length", "content-encoding", "transfer-encoding", "connection"]);

export function checkHeaders(check: CheckContext, path: Path, headers: unknown): void {
  for (const [name, value] of entriesOf(headers)) {
    if (!HEADER_NAME.test(name)) check.report([...path, name], `"${name}" is not a header name`);
    else if (FRAMING_HEADERS.has(name.toLowerCase())) check.report([...path, name], "is set by the client itself");
    else if (typeof value === "string" && !HEADER_VALUE.test(value))
      check.report([...path, name], "is not a header value: it must be one line of Latin-1 characters");
  }
}
