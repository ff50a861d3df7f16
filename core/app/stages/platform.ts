/** Stages: the newest lines of the log, and what the service does about its own packages and environment. */
import { logFeed } from "../../api/sockets/log-news.ts";
import { PROJECT } from "../../lib/version.ts";
import { LogRing } from "../../observability/log-ring.ts";
import { Platform } from "../../platform/platform.ts";
import type { Stage } from "./stage.ts";

export const logs: Stage<"options", "logs" | "logNews"> = ({ options: { ring } }) => {
  const logs = ring ?? new LogRing(0);
  return { parts: { logs, logNews: logFeed(logs) } };
};

export const platform: Stage<"manifest" | "host" | "loaded" | "options", "platform"> = ({
  manifest,
  host,
  loaded: { folder },
  options: { project = PROJECT },
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
