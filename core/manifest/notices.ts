/** What a manifest asks for and this version does not do: said at boot, never pretended. */
import { bracketed, hostName, isLoopback } from "../lib/host-name.ts";
import { type CheckContext, entriesOf, isMap } from "./check.ts";
import type { Path } from "./issues.ts";

export function addNotices(check: CheckContext): void {
  const { document } = check;
  const warn = (path: Path, message: string) => check.report(path, message, "warning");
  const auth = isMap(document.auth) ? document.auth : {};
  const server = isMap(document.server) ? document.server : {};
  if (auth.mode === "none" && typeof server.host === "string" && isPublic(server.host)) {
    warn(["server", "host"], `the service is open to everybody who reaches ${server.host}: auth.mode is none`);
  }
  for (const [name, tool] of entriesOf(document.tools)) {
    if (isMap(tool) && tool.approval === true) {
      warn(["tools", name, "approval"], "this version cannot ask for approval yet: the tool never runs");
    }
  }
  const { sample, otlp } = isMap(document.observability) ? document.observability : {};
  if (sample === 0 && isMap(otlp) && typeof otlp.endpoint === "string" && otlp.endpoint !== "") {
    warn(["observability", "otlp", "endpoint"], "nothing is sent there: observability.sample is 0");
  }
}

/** Whether others than this machine may reach a host. A name other than localhost may be anything. */
export function isPublic(host: string): boolean {
  const name = hostName(bracketed(host));
  return name === null || !isLoopback(name);
}
