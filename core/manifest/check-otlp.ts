/** Checks `observability.otlp`, the destination of exported spans. */
import { isObject } from "../lib/is-object.ts";
import { type CheckContext, mapOf } from "./check.ts";
import { checkHeaders } from "./check-headers.ts";
import type { Path } from "./issues.ts";

export function checkOtlp(check: CheckContext): void {
  const { otlp } = mapOf(check.document.observability);
  if (!isObject(otlp)) return;
  const path: Path = ["observability", "otlp"];
  // Messages show neither the address nor headers: both may contain keys.
  const problem = typeof otlp.endpoint === "string" && otlp.endpoint !== "" ? endpointProblem(otlp.endpoint) : null;
  if (problem !== null) check.report([...path, "endpoint"], problem);
  checkHeaders(check, [...path, "headers"], otlp.headers);
}

function endpointProblem(endpoint: string): string | null {
  if (!URL.canParse(endpoint)) return "must be a URL such as http://127.0.0.1:4318";
  const { username, password } = new URL(endpoint);
  return username + password === "" ? null : "must not contain a user name or password: write headers.Authorization";
}
