/** Stages: the newest lines of the log, and the package updates and environment file of the service. */
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

/** The folder with the package.json: that of the manifest if Penstock is installed as a package, else Penstock's own. */
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
