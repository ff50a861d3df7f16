/** One connection of a pool while one caller uses it. */
import type { PoolClient, QueryConfig, QueryResult } from "pg";
import { isPostgresConnectionLost } from "./postgres-errors.ts";

export class Session {
  readonly #client: PoolClient;
  readonly #named: boolean;
  #lost = false;

  /** @param named whether the connection keeps named statements: one that a pooler lends for a transaction does not */
  constructor(client: PoolClient, named: boolean) {
    this.#client = client;
    this.#named = named;
  }

  query(statement: QueryConfig): Promise<QueryResult> {
    return this.#watch(this.#client.query(this.#named ? statement : withoutName(statement)) as Promise<QueryResult>);
  }

  /** Several statements without parameters, in one round trip. */
  queryAll(statements: readonly string[]): Promise<QueryResult[]> {
    return this.#watch(this.#client.query(statements.join("; ")) as Promise<QueryResult[]>);
  }

  /**
   * A transaction under READ COMMITTED, whose first statements are sent together with BEGIN.
   * @param work whether to commit
   */
  async transaction(first: readonly string[], work: (begun: QueryResult[]) => Promise<boolean>): Promise<void> {
    try {
      const [, ...begun] = await this.queryAll(["BEGIN ISOLATION LEVEL READ COMMITTED", ...first]);
      const text = (await work(begun)) ? "COMMIT" : "ROLLBACK";
      const { command } = await this.query({ text });
      // A transaction that has failed answers COMMIT with ROLLBACK, and no error.
      if (command !== text) throw new Error(`the transaction ended with ${command}`);
    } catch (error) {
      if (!this.#lost) await this.query({ text: "ROLLBACK" }).catch(() => {});
      throw error;
    }
  }

  /** Gives the connection back, or closes it when it broke. */
  release(): void {
    this.#client.release(this.#lost);
  }

  async #watch<T>(result: Promise<T>): Promise<T> {
    try {
      return await result;
    } catch (error) {
      if (isPostgresConnectionLost(error)) this.#lost = true;
      throw error;
    }
  }
}

const withoutName = ({ name: _, ...statement }: QueryConfig): QueryConfig => statement;
