/** Programs that only some machines have. */
import { spawnSync } from "node:child_process";

/** For `skip` of a test that needs the program: why it is skipped, as skips.mjs knows it, or false where the program is there. */
export const programMissing = (program: string): string | false =>
  spawnSync("which", [program]).status === 0 ? false : `no ${program} on this machine`;
