/** Stages: the newest lines of the log, and what the service does about its own packages and environment. */
import { sep } from "node:path";
import { logFeed } from "../../api/sockets/log-news.ts";
import { PROJECT } from "../../lib/version.ts";
import { LogRing } from "../../observability/log-ring.ts";
import { Platform } from "../../platform/platform.ts";
import type { Stage } from "./stage.ts";

export const logs: Stage<"options", "logs" | "logNews"> = ({ options: { ring } }) => {
  const logs = ring ?? new LogRing(0);
  return { parts: { logs, logNews: logFeed(logs) } };
};

/** Of a Penstock that is installed as a package, that is the folder of the manifest: it has the package.json that names it. */
const projectOf = (folder: string): string => (PROJECT.includes(`${sep}node_modules${sep}`) ? folder : PROJECT);

export const platform: Stage<"manifest" | "host" | "loaded" | "options", "platform"> = ({
  manifest,
  host,
  loaded: { folder },
  options: { project = projectOf(folder) },
}) => {
  const source = {
    ...host,
    folder,
    project,
    get install() {
      return manifest.updates.install;
    },
  };
  return { parts: { platform: new Platform(source) } };
};
