/** Warnings at boot: settings of the manifest that have no effect, and what they leave open to everybody. */
import { bracketed, hostName, isLoopback } from "../lib/host-name.ts";
import { isObject } from "../lib/is-object.ts";
import { type CheckContext, mapOf } from "./check.ts";
import type { Path } from "./manifest.ts";

export function addNotices(check: CheckContext): void {
  const { document } = check;
  const warn = (path: Path, message: string) => check.report(path, message, "warning");
  const auth = mapOf(document.auth);
  const server = mapOf(document.server);
  if (auth.mode === "none" && typeof server.host === "string" && isPublic(server.host)) {
    warn(["server", "host"], `the service is open to everybody who reaches ${server.host}: auth.mode is none`);
  }
  const { sample, otlp } = mapOf(document.observability);
  if (sample === 0 && isObject(otlp) && typeof otlp.endpoint === "string" && otlp.endpoint !== "") {
    warn(["observability", "otlp", "endpoint"], "nothing is sent there: observability.sample is 0");
  }
}

/** Whether other machines may be able to reach a host. A name other than localhost may resolve to anything. */
export function isPublic(host: string): boolean {
  const name = hostName(bracketed(host));
  return name === null || !isLoopback(name);
}
