/** Where spans are sent. */
import { type Check, entriesOf, isMap } from "./check.ts";
import { HEADER_NAME } from "./check-server.ts";
import type { Path } from "./issues.ts";

/** What may stand in the value of a header (RFC 9110, section 5.5). */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

export function checkOtlp(check: Check): void {
  const { otlp } = isMap(check.document.observability) ? check.document.observability : { otlp: undefined };
  if (!isMap(otlp)) return;
  const path: Path = ["observability", "otlp"];
  // Neither is shown: addresses hold keys as headers do.
  const problem = typeof otlp.endpoint === "string" && otlp.endpoint !== "" ? endpointProblem(otlp.endpoint) : null;
  if (problem !== null) check.report([...path, "endpoint"], problem);
  for (const [name, value] of entriesOf(otlp.headers)) {
    if (!HEADER_NAME.test(name)) check.report([...path, "headers", name], `"${name}" is no name of a header`);
    else if (typeof value === "string" && !HEADER_VALUE.test(value)) {
      check.report([...path, "headers", name], "is no value of a header: it must be one line of Latin letters");
    }
  }
}

function endpointProblem(endpoint: string): string | null {
  if (!URL.canParse(endpoint)) return "must be a URL such as http://127.0.0.1:4318";
  const { username, password } = new URL(endpoint);
  return username + password === "" ? null : "must hold no user and no password: write headers.Authorization";
}
