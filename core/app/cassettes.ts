/** Opens the folder of cassettes that a command names. */
import type { Logger } from "pino";
import type { CassetteIntercept } from "../models/cassettes/record.ts";

export interface CassetteFolders {
  /** A folder for what providers answer. */
  record?: string | undefined;
  /** A folder with what providers answered: nothing is sent to them. */
  replay?: string | undefined;
}

/** Their code is loaded only where it is asked for. */
export async function openCassettes(
  { record, replay }: CassetteFolders,
  logger: Logger,
): Promise<CassetteIntercept | undefined> {
  if (record !== undefined) {
    const { recordCassettes } = await import("../models/cassettes/record.ts");
    return recordCassettes(record, logger);
  }
  if (replay === undefined) return undefined;
  const { replayCassettes } = await import("../models/cassettes/replay.ts");
  return replayCassettes(replay);
}
