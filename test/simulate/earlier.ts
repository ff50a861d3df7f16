/** The rows of an earlier release, with which some simulations begin: earlier-write.ts tells how they were made. */
import { readFileSync } from "node:fs";
import { LAYOUT_VERSION } from "../../core/storage/layout.ts";
import { randomOf } from "../fuzz/random.ts";
import type { ClientKind } from "./clients.ts";

/** What a client of the earlier release had begun. */
export interface Left {
  readonly does: ClientKind;
  readonly key: string;
  readonly user: string;
  /** The tools or the workflow, where its client chooses them. */
  readonly choice: string;
  /** What a person has said to its question. */
  readonly approved?: boolean;
  /** Somebody has asked for its end. */
  readonly isCancelled?: boolean;
  /** It ended with its process: a task of that release was no run. */
  readonly isLost?: boolean;
}

export interface Earlier {
  /** The commit. */
  readonly release: string;
  readonly schema: number;
  /** When its processes died, in milliseconds since 1970. */
  readonly written: number;
  readonly left: readonly Left[];
  /** What its processes did to the world outside. */
  readonly effects: readonly (readonly [kind: string, key: string, detail: string | null])[];
  readonly rows: readonly (readonly [key: string, value: string])[];
}

export const EARLIER = JSON.parse(
  readFileSync(new URL("../fixtures/stores/simulated.json", import.meta.url), "utf8"),
) as Earlier;
// A simulated database has no layout of its own: the steps of an upgrade would have to be taken here.
if (EARLIER.schema !== LAYOUT_VERSION) throw new Error(`the rows of ${EARLIER.release} have schema ${EARLIER.schema}`);

/** How long no process is there: the next release begins then. */
const AWAY_MS = [1_000, 20_000, 120_000];

export const beginningOf = ({ written }: Earlier, seed: number): number => written + randomOf(seed).pick(AWAY_MS);
