/** Stages: the newest lines of the log, and what the service does about its own packages and environment. */
import { PROJECT } from "../../lib/version.ts";
import { LogRing } from "../../observability/log-ring.ts";
import { Platform } from "../../platform/platform.ts";
import type { Stage } from "./stage.ts";

export const logs: Stage<"options", "logs"> = ({ options: { ring } }) => ({
  parts: { logs: ring ?? new LogRing(0) },
});

export const platform: Stage<"manifest" | "host" | "loaded" | "options", "platform"> = ({
  manifest: { updates },
  host,
  loaded: { folder },
  options: { project = PROJECT },
}) => ({ parts: { platform: new Platform({ ...host, folder, project, ...updates }) } });
