/** What this folder uses of `pg`, which comes without types. */
declare module "pg" {
  import type { EventEmitter } from "node:events";
  import type { Duplex } from "node:stream";

  export interface QueryConfig {
    /** A named statement is parsed and planned once per connection. */
    name?: string;
    text: string;
    values?: readonly unknown[];
    /** Milliseconds; default: that of the pool. */
    query_timeout?: number;
  }

  export interface QueryResult {
    /** `COMMIT`, `ROLLBACK`, `SELECT`... */
    command: string;
    rowCount: number | null;
    rows: Record<string, unknown>[];
  }

  export interface PoolConfig {
    connectionString?: string;
    application_name?: string;
    /** Connections. */
    max?: number;
    connectionTimeoutMillis?: number;
    idleTimeoutMillis?: number;
    query_timeout?: number;
    /** These three in milliseconds, kept by the server for each session. */
    statement_timeout?: number;
    lock_timeout?: number;
    idle_in_transaction_session_timeout?: number;
    keepAlive?: boolean;
    enableChannelBinding?: boolean;
    /** Of connections. */
    Client?: typeof PoolClient;
    /** A connection is in the pool once it has resolved. */
    onConnect?(client: PoolClient): Promise<void>;
  }

  export class PoolClient extends EventEmitter {
    constructor(config: PoolConfig);
    readonly connection: EventEmitter & { readonly stream: Duplex };
    connect(): Promise<unknown>;
    /** Of the server's process, as whoever answered the connection gave it. */
    readonly processID: number | null;
    query(statement: QueryConfig): Promise<QueryResult>;
    /** One or more statements without parameters: a result for each, an array when there are several. */
    query(text: string): Promise<QueryResult | QueryResult[]>;
    /** With an error the connection is closed instead of kept. */
    release(error?: Error | boolean): void;
  }

  export class Pool extends EventEmitter {
    constructor(config: PoolConfig);
    connect(): Promise<PoolClient>;
    query(statement: QueryConfig): Promise<QueryResult>;
    end(): Promise<void>;
    readonly totalCount: number;
  }

  const pg: { Pool: typeof Pool; Client: typeof PoolClient };
  export default pg;
}
