/** Opens the folder of cassettes that a command names. */
import type { Logger } from "pino";
import type { CassetteIntercept } from "../models/cassettes/intercept.ts";

export interface CassetteFolders {
  /** A folder in which to record the answers of providers. */
  record?: string | undefined;
  /** A folder with recorded answers of providers, to which nothing is sent then. */
  replay?: string | undefined;
}

/** Loads the code for cassettes only when it is needed. */
export async function openCassettes(
  { record, replay }: CassetteFolders,
  logger: Logger,
): Promise<CassetteIntercept | undefined> {
  if (record !== undefined) {
    const { recordCassettes } = await import("../models/cassettes/intercept.ts");
    return recordCassettes(record, logger);
  }
  if (replay === undefined) return undefined;
  const { replayCassettes } = await import("../models/cassettes/intercept.ts");
  return replayCassettes(replay);
}
