/**
 * All connections of a process lead to one server, which is asked for at each new connection: a name or a proxy may lead to another one
 * than before. When one of them breaks, does not answer, or leads elsewhere, a new generation of all of them begins, at the first server
 * that takes writes. So nobody reads from one server what another one writes.
 */
import pg, { type Pool, type PoolClient, type PoolConfig, type QueryConfig, type QueryResult } from "pg";
import type { Logger } from "pino";
import {
  endsConnection,
  isConnectionFailure,
  isRefusal,
  isRefusedSetting,
  isTimeout,
  olderServer,
  otherServer,
  readOnly,
  Unfit,
} from "./postgres-errors.ts";
import type { PostgresSettings } from "./postgres-settings.ts";

/* Which engine answers in the place of PostgreSQL: those that are known not to do what a store relies on are refused. */

interface ServerKind {
  /** The statement that asks a connection where it leads; further columns may follow. */
  readonly look: string;
  readonly neon: boolean;
  readonly citus: boolean;
}

/** By what they answer to `version()`, and behind it by the host. */
const REFUSED: readonly (readonly [RegExp, string])[] = [
  [/^CockroachDB/, "CockroachDB: it has no LISTEN, and its advisory locks do nothing before 26.3"],
  [/-YB-/, "YugabyteDB: it has no LISTEN before 2025.2.3, and nobody has shown that its locks do what commits rely on"],
  [
    /^PostgreSQL [\d.]+ at | [^ .]*\.dsql[.-][^ ]*\.on\.aws$/,
    "Aurora DSQL: it has no LISTEN, no advisory locks and no triggers",
  ],
  [/^(?!PostgreSQL )/, "another engine than PostgreSQL"],
];

/** Of this connection, as every engine can say it. */
const PLAIN = "SELECT pg_backend_pid() AS process, current_setting('transaction_read_only') = 'on' AS \"readOnly\"";
/** The timeline of what is written now: that of the last checkpoint may be the one before a promotion. */
const LINE = `${PLAIN}, pg_is_in_recovery() AS standby, (SELECT system_identifier FROM pg_control_system())::text
  || CASE WHEN pg_is_in_recovery() THEN NULL ELSE '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS line`;

const KIND = `SELECT current_setting('neon.timeline_id', true) IS NOT NULL AS neon,
  EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') AS citus`;

/** Where the node of a group of Citus is, as settings of a URL, if this one is not it. Zero is the group of the coordinator. */
const citusElsewhere = (group: string) =>
  `(SELECT nodename || '&port=' || nodeport FROM pg_dist_node WHERE noderole = 'primary' AND groupid = coalesce((${group}), 0)
     AND groupid <> (SELECT groupid FROM pg_dist_local_group)) AS elsewhere`;

/** @throws Unfit when it is refused */
async function engineOf(client: PoolClient, url: string, settings: PostgresSettings): Promise<ServerKind> {
  const ask = async (text: string) => {
    const { rows } = (await client.query({ text, query_timeout: settings.connectTimeout })) as { rows: object[] };
    return rows[0] as Record<string, unknown>;
  };
  const { version } = await ask("SELECT version() AS version");
  const reason = REFUSED.find(([engine]) => engine.test(`${version} at ${new URL(url).hostname}`))?.[1];
  if (reason !== undefined && !settings.unverified) {
    throw new Unfit(
      `it is ${reason} (${version}). Penstock is tested on PostgreSQL; ?engine=unverified runs it all the same`,
    );
  }
  // Some that are close to PostgreSQL have no WAL, or do not tell.
  const refused = (error: unknown) => {
    if (!isRefusal(error)) throw error;
    return null;
  };
  const look = (await ask(LINE).catch(refused)) === null ? PLAIN : LINE;
  const { neon, citus } = (await ask(KIND).catch(refused)) ?? {};
  return { look, neon: neon === true, citus: citus === true };
}

/** A scan of a large table lives that long. */
const STATEMENT_TIMEOUT_MS = 30_000;
/** Longer: what the server says about it comes first. This one is for a server that does not answer. */
const QUERY_TIMEOUT_MS = STATEMENT_TIMEOUT_MS + 1_000;
/** A process that is stopped in its transaction keeps its rows locked, and all others wait: the server ends it after so long. */
const IDLE_TRANSACTION_TIMEOUT_MS = 1_000;
/** Longer, so that who waits for such a process outlasts it. */
const LOCK_TIMEOUT_MS = 5_000;
const IDLE_TIMEOUT_MS = 30_000;
/** For short queries on which a caller waits that has more to do. */
export const SHORT_QUERY_TIMEOUT_MS = 2_000;
/** What is under way on connections of an older generation has so long to end. */
const LEAVE_MS = 2_000;
/** A server that only takes reads is asked again after so long, on new connections: sessions keep what was so when they began. */
const READ_ONLY_MS = 2_000;

/** The commit in one statement is as strict as it must be under READ COMMITTED alone, and the default may change while this runs. */
const PREPARE = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED";

/** What a server says about itself, to the text of its engine. */
interface Facts {
  readonly process: number;
  readonly readOnly: boolean;
  readonly standby?: boolean;
  /** The cluster and its timeline, which every promotion makes anew; null where that cannot be told. */
  readonly line?: string | null;
  /** The node of Citus to which connections lead, where this one is not it. */
  readonly elsewhere?: string | null;
}

interface Server extends ServerKind, Facts {
  readonly url: string;
  /** The connections are those of the server itself, which keep what a session prepares. A pooler lends one for each transaction. */
  readonly direct: boolean;
}

class Generation {
  readonly since = performance.now();
  readonly clients = new Set<PoolClient>();
  /** Those that somebody keeps, and does not give back by himself. */
  readonly held = new Set<PoolClient>();
  /** Some connection did not answer in time. */
  isSilent = false;
  readonly server: Server;

  constructor(server: Server) {
    this.server = server;
  }
}

export type { Generation };

export class PostgresConnections {
  readonly #settings: PostgresSettings;
  readonly #logger: Logger;
  readonly #of = new WeakMap<PoolClient, Generation>();
  readonly #left = new Set<Generation>();
  /** By the URL of the server, asked once: a new generation begins with one statement. */
  readonly #engines = new Map<string, ServerKind>();
  /** Whether the server is told the bounds of sessions. */
  #bounded = true;
  #current: Generation | null = null;
  /** The last one that was current. */
  #last: Generation | null = null;
  #entering: Promise<Generation> | null = null;
  /** Which node of Citus connections lead to: at first the coordinator, which alone makes tables, then the one that holds the schema. */
  #group = "0";

  constructor(settings: PostgresSettings, logger: Logger) {
    this.#settings = settings;
    this.#logger = logger;
  }

  /** The server that this process uses, or used last. */
  get server(): Server | undefined {
    return this.#last?.server;
  }

  /** The tables are there. @param holder SQL of the node that holds them */
  async settle(holder: string): Promise<void> {
    this.#group = holder;
    if (!this.server?.citus) return;
    this.renew(this.#last!);
    this.#last = null;
    await this.enter();
  }

  #look({ look, citus }: ServerKind): string {
    return citus ? `${look}, ${citusElsewhere(this.#group)}` : look;
  }

  /** A pool that survives the failure of any of its connections, and outlives generations. None is made before the first query. */
  createPool(max: number): Pool {
    const connections = this;
    class Client extends pg.Client {
      constructor(config: PoolConfig) {
        const generation = connections.#last!;
        super({ ...config, ...connections.#config(generation.server.url) });
        connections.#watch(this, generation);
      }
    }
    const pool = new pg.Pool({
      max,
      connectionTimeoutMillis: this.#settings.connectTimeout,
      idleTimeoutMillis: IDLE_TIMEOUT_MS,
      Client,
      onConnect: (client) => this.#check(client),
    });
    // An `error` event without a listener ends the process. The pool replaces the connection.
    pool.on("error", (error) => this.#logger.debug({ err: error }, "an idle connection to PostgreSQL broke"));
    pool.on("remove", (client: PoolClient) => this.#of.get(client)?.clients.delete(client));
    return pool;
  }

  #config(url: string): PoolConfig {
    return {
      connectionString: url,
      application_name: "penstock",
      connectionTimeoutMillis: this.#settings.connectTimeout,
      query_timeout: QUERY_TIMEOUT_MS,
      ...(this.#bounded && {
        statement_timeout: STATEMENT_TIMEOUT_MS,
        lock_timeout: LOCK_TIMEOUT_MS,
        idle_in_transaction_session_timeout: IDLE_TRANSACTION_TIMEOUT_MS,
      }),
      keepAlive: true,
      enableChannelBinding: /[?&]channel_binding=(?:prefer|require)/.test(url),
    };
  }

  #watch(client: PoolClient, generation: Generation): void {
    this.#of.set(client, generation);
    generation.clients.add(client);
    // Only of one that was not ended here.
    client.on("error", () => this.renew(generation));
  }

  /** @throws what the driver throws, and what is wrong with the server */
  async session(pool: Pool): Promise<Session> {
    for (let hasFailed = false; ; ) {
      const generation = await this.enter();
      try {
        const client = await pool.connect();
        const of = this.#of.get(client)!;
        if (of === this.#current) return new Session(client, of, this);
        client.release(true);
      } catch (error) {
        if (!isConnectionFailure(error)) throw error;
        this.renew(generation);
        // Another server, or the same one on another way in, may work.
        if (hasFailed) throw error;
        hasFailed = true;
      }
    }
  }

  /** A session that is kept: with the next generation it ends. */
  async hold(pool: Pool): Promise<Session> {
    const session = await this.session(pool);
    session.generation.held.add(session.client);
    session.client.on("end", () => session.generation.held.delete(session.client));
    return session;
  }

  /** The generation in use; makes the next one when there is none. */
  async enter(): Promise<Generation> {
    const current = this.#current;
    if (current?.server.readOnly && performance.now() - current.since > READ_ONLY_MS) this.renew(current);
    this.#entering ??= this.#begin().catch((error) => {
      this.#entering = null;
      throw error;
    });
    return this.#current ?? this.#entering;
  }

  isCurrent(generation: Generation): boolean {
    return generation === this.#current;
  }

  /** No query begins on connections of this generation any more. */
  renew(generation: Generation): void {
    if (generation !== this.#current) return;
    this.#current = null;
    this.#entering = null;
    this.#left.add(generation);
    for (const client of generation.held) end(client);
    // Who waits on it asks for no other one.
    if (generation.isSilent) this.enter().catch(() => undefined);
  }

  async #begin(): Promise<Generation> {
    const generation = new Generation(await this.#find());
    const [before, now] = [this.server?.line, generation.server.line];
    if (before && now && before !== now)
      this.#logger.info(`PostgreSQL: another server has taken over (cluster and timeline ${before}, now ${now})`);
    this.#current = generation;
    this.#last = generation;
    for (const left of this.#left) {
      const leave = () => left.clients.forEach(end);
      // A connection works, so what waits on the silent ones waits for nothing.
      if (left.isSilent) leave();
      else setTimeout(leave, LEAVE_MS).unref();
    }
    this.#left.clear();
    return generation;
  }

  /** The first server that takes writes; one that takes only reads where there is no other. */
  async #find(): Promise<Server> {
    let failure: unknown;
    let readable: Server | undefined;
    for (const url of this.#settings.urls) {
      try {
        const server = await this.#examine(url);
        if (!server.readOnly) return server;
        readable ??= server;
      } catch (error) {
        failure = error;
      }
    }
    if (readable === undefined) throw failure;
    return readable;
  }

  async #examine(url: string, isLed = false): Promise<Server> {
    const client = new pg.Client(this.#config(url));
    client.on("error", () => undefined);
    try {
      await client.connect();
      const engine = this.#engines.get(url) ?? (await engineOf(client, url, this.#settings));
      this.#engines.set(url, engine);
      const facts = await this.#facts(client, this.#look(engine));
      if (facts.elsewhere) {
        if (isLed) throw otherServer();
        // With the same credentials. The driver takes the last of each setting.
        return await this.#examine(`${url}${url.includes("?") ? "&" : "?"}host=${facts.elsewhere}`, true);
      }
      return { url, direct: facts.process === client.processID, ...engine, ...facts };
    } catch (error) {
      if (!this.#bounded || !isRefusedSetting(error)) throw error;
      // A pooler (PgBouncer) refuses the bounds of sessions unless it is told to ignore them.
      this.#bounded = false;
      this.#logger.warn(
        "PostgreSQL: the pooler refuses the bounds of sessions, set statement_timeout, lock_timeout and idle_in_transaction_session_timeout at the role",
      );
      return await this.#examine(url, isLed);
    } finally {
      end(client);
    }
  }

  /** @throws when the server must not be used: it follows another one, or it was replaced by one that this process has used */
  async #facts(client: PoolClient, text: string): Promise<Facts> {
    const result = await client.query({ text, query_timeout: this.#settings.connectTimeout });
    const [facts] = [result].flat().at(-1)!.rows as unknown as [Facts];
    if (facts.standby) throw readOnly();
    const [known, line] = [this.server?.line, facts.line];
    if (known && line && line < known && line.slice(0, -TIMELINE_DIGITS) === known.slice(0, -TIMELINE_DIGITS))
      throw olderServer();
    return facts;
  }

  /** Whether a new connection leads where the others of its generation do. */
  async #check(client: PoolClient): Promise<void> {
    const generation = this.#of.get(client)!;
    const look = this.#look(generation.server);
    this.#compare(generation, await this.#facts(client, generation.server.direct ? `${PREPARE}; ${look}` : look));
  }

  #compare(generation: Generation, facts: Facts): void {
    const { line, readOnly } = generation.server;
    if (line === facts.line && readOnly === facts.readOnly && !facts.elsewhere) return;
    this.renew(generation);
    throw otherServer();
  }

  /** Asks a connection of a pool whether it leads where it did, and for what `text` gives. */
  async look(pool: Pool, text: string): Promise<Record<string, unknown>> {
    const session = await this.session(pool);
    try {
      // Two statements: Citus does not combine its tables with what a node says about itself.
      const both = { text: `${text}; ${this.#look(session.generation.server)}`, query_timeout: SHORT_QUERY_TIMEOUT_MS };
      const [more, facts] = ((await session.query(both)) as unknown as QueryResult[]).map(({ rows }) => rows[0]);
      this.#compare(session.generation, facts as unknown as Facts);
      return { ...more, ...facts };
    } finally {
      session.release();
    }
  }
}

/** In hexadecimal. */
const TIMELINE_DIGITS = 8;

/** At once, whether it answers or not. */
const end = (client: PoolClient): void => void client.connection.stream.destroy();

/** One connection of a pool while one caller uses it. */
export class Session {
  readonly client: PoolClient;
  readonly generation: Generation;
  readonly #connections: PostgresConnections;
  #lost = false;

  constructor(client: PoolClient, generation: Generation, connections: PostgresConnections) {
    this.client = client;
    this.generation = generation;
    this.#connections = connections;
  }

  query(statement: QueryConfig): Promise<QueryResult> {
    const { direct } = this.generation.server;
    return this.#watch(this.client.query(direct ? statement : withoutName(statement)) as Promise<QueryResult>);
  }

  /**
   * A transaction under READ COMMITTED, whose first statements are sent together with BEGIN.
   * @param work whether to commit
   */
  async transaction(first: readonly string[], work: (begun: QueryResult[]) => Promise<boolean>): Promise<void> {
    try {
      const text = ["BEGIN ISOLATION LEVEL READ COMMITTED", ...first].join("; ");
      const [, ...begun] = (await this.query({ text })) as unknown as QueryResult[];
      const end = (await work(begun)) ? "COMMIT" : "ROLLBACK";
      const { command } = await this.query({ text: end });
      // A transaction that has failed answers COMMIT with ROLLBACK, and no error.
      if (command !== end) throw new Error(`the transaction ended with ${command}`);
    } catch (error) {
      if (!this.#lost) await this.query({ text: "ROLLBACK" }).catch(() => {});
      throw error;
    }
  }

  /** Gives the connection back, or closes it when it broke, or belongs to an older generation. */
  release(): void {
    this.client.release(this.#lost || !this.#connections.isCurrent(this.generation));
  }

  async #watch<T>(result: Promise<T>): Promise<T> {
    try {
      return await result;
    } catch (error) {
      if (endsConnection(error)) {
        this.#lost = true;
        this.generation.isSilent ||= isTimeout(error);
        this.#connections.renew(this.generation);
      }
      throw error;
    }
  }
}

const withoutName = ({ name: _, ...statement }: QueryConfig): QueryConfig => statement;
