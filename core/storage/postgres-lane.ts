/**
 * A lane is the row of one process in which each of its commits leaves a mark, so that its fate can be asked for when the connection
 * breaks: a commit moves the mark from where the one before left it. Who asks closes the lane at the same time, so that a commit that is
 * still on its way, or waits in a server that stands still, can no longer happen.
 *
 * With it come the revisions that a process may use, taken in blocks ahead. Both are given up with the generation of connections:
 * behind the next one there may be a server that has lost them.
 */
import { randomUUID } from "node:crypto";
import type { Generation, Session } from "./postgres-connections.ts";
import { checkLayout } from "./postgres-errors.ts";
import type { PostgresNames } from "./postgres-names.ts";

/** No group of commits is larger. */
export const REVISIONS_PER_BLOCK = 1024;
/** Before the first block. */
export const NO_REVISIONS = 1 - REVISIONS_PER_BLOCK;

/**
 * Takes a block. It is a row, and not a sequence, since it moves with its schema to another node of Citus. A store that was written with a
 * sequence goes on where no sequence can have come to.
 */
const takeBlock = (meta: string) =>
  `INSERT INTO ${meta} AS taken (key, value) VALUES ('revisions', (${SECONDS} << 20)::text)
     ON CONFLICT (key) DO UPDATE SET value = taken.value::bigint + ${REVISIONS_PER_BLOCK} RETURNING value AS base`;

/**
 * Lanes of processes that are gone, by the clock of the database. A process that was silent for so long only opens another one.
 */
const FORGOTTEN_SECONDS = 24 * 60 * 60;

/** What one transaction may use. */
export interface Ticket {
  readonly lane: string;
  readonly from: string;
  readonly to: string;
  /** The first of as many revisions as were asked for. */
  readonly base: number;
}

export class PostgresLane {
  readonly #names: PostgresNames;
  #lane: { readonly key: string; mark: string; readonly clock: () => number } | null = null;
  #generation: Generation | null = null;
  #next = 0;
  #end = 0;

  constructor(names: PostgresNames) {
    this.#names = names;
  }

  /** @throws Unfit */
  async ticket(session: Session, revisions: number): Promise<Ticket> {
    if (session.generation !== this.#generation) this.leave();
    this.#generation = session.generation;
    const lane = this.#lane ?? (await this.#open(session));
    if (this.#next + revisions > this.#end) {
      const { rows } = await session.query({ text: takeBlock(this.#names.meta) });
      // The driver gives a bigint as text.
      this.#next = Number(rows[0]?.base);
      this.#end = this.#next + REVISIONS_PER_BLOCK;
    }
    const base = this.#next;
    return { lane: lane.key, from: lane.mark, to: `${base} ${lane.clock()}`, base };
  }

  /** @param last the greatest revision that was used */
  moved({ to }: Ticket, last: number): void {
    if (this.#lane !== null) this.#lane.mark = to;
    this.#next = last + 1;
  }

  leave(): void {
    this.#lane = null;
    this.#end = 0;
  }

  async #open(session: Session) {
    const { meta } = this.#names;
    const key = `lane/${randomUUID()}`;
    const { rows } = await session.query({
      text: `WITH opened AS (INSERT INTO ${meta} (key, value) VALUES ($1, '0 ' || ${SECONDS}) RETURNING value), forgotten AS (
          DELETE FROM ${meta} WHERE key LIKE 'lane/%' AND split_part(value, ' ', 2)::bigint < ${SECONDS} - ${FORGOTTEN_SECONDS})
        SELECT (SELECT value FROM opened) AS mark,
          (SELECT value FROM ${meta} WHERE key = 'schema') AS layout`,
      values: [key],
    });
    const [{ mark, layout } = {}] = rows;
    const problem = checkLayout(layout);
    if (problem !== null) throw problem;
    const lane = { key, mark: String(mark), clock: clockFrom(Number(String(mark).split(" ")[1])) };
    this.#lane = lane;
    return lane;
  }
}

/** Of the database: the clock of one process may be days away from those of the others. */
const SECONDS = "extract(epoch FROM now())::bigint";

/** The seconds of the database from now on, rather late than early: one clock stands still while the machine sleeps, the other may be set. */
function clockFrom(seconds: number): () => number {
  const [steady, system] = [performance.now(), Date.now()];
  return () => seconds + Math.floor(Math.max(performance.now() - steady, Date.now() - system) / 1000);
}

/** Closes a lane, whatever its state. */
export const closeLaneSql = ({ meta }: PostgresNames) =>
  `UPDATE ${meta} SET value = split_part(value, ' ', 1) || ' ' || split_part(value, ' ', 2) || ' closed' WHERE key = $1
     RETURNING value`;

/** @param mark what `closeLaneSql` gave; undefined when there is no such lane */
export const hasMoved = (mark: unknown, { to }: Ticket): boolean => mark === `${to} closed`;
