/** The cases of every engine behind one interface. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { PostgresServer } from "../support/postgres.ts";
import { COMMIT_MODES } from "../support/postgres-modes.ts";
import type { Built } from "./built.ts";
import { type Cases, playMemory, type Seen } from "./cases.ts";
import { openPostgresCases } from "./postgres-cases.ts";
import { playSqlite } from "./sqlite-cases.ts";

export type Engine = "memory" | "sqlite" | "postgres in one call" | "postgres in steps";

export const isPostgres = (engine: Engine): boolean => engine.startsWith("postgres");

/** @param server needed for PostgreSQL alone */
export async function openCases(engine: Engine, built: Built, server: PostgresServer | null): Promise<Cases> {
  const seen: Seen = {};
  if (engine === "memory")
    return { play: (seed) => playMemory(built.engines, seed, seen), seen, close: async () => {} };
  const mode = COMMIT_MODES.find(({ name }) => engine === `postgres ${name}`);
  if (mode !== undefined) return openPostgresCases(built.engines, server!, mode);
  const folder = await mkdtemp(join(tmpdir(), "penstock-model-"));
  return {
    play: (seed) => playSqlite(built, folder, seed, seen),
    seen,
    close: () => rm(folder, { recursive: true, force: true }),
  };
}
