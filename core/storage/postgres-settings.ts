/** What the URL of PostgreSQL says to Penstock, and not to the driver. */

export interface PostgresSettings {
  /** The URL for the driver. */
  readonly url: string;
  /** Where the tables are. */
  readonly schema: string;
  /** Connections of this process at most. */
  readonly pool: number;
}

export const isPostgresUrl = (url: string): boolean => /^postgres(ql)?:/.test(url);

const DEFAULT_SCHEMA = "public";
/** Two that write, and eight that read. */
const DEFAULT_POOL = 10;
const SMALLEST_POOL = 3;
const LARGEST_POOL = 100;
/** No capital letters, which would need quotes wherever somebody types the name. */
const SCHEMA = /^[a-z_][a-z0-9_]{0,62}$/;

/** What the driver reads from a URL, and what it leaves unread of the settings of libpq, which providers of databases write there. */
const DRIVER_SETTINGS: ReadonlySet<string> = new Set(
  `application_name binary channel_binding client_encoding connect_timeout connectionTimeoutMillis database dbname encoding
  fallback_application_name gssdelegation gssencmode gsslib host hostaddr idle_in_transaction_session_timeout keepAlive
  keepAliveInitialDelayMillis keepalives keepalives_count keepalives_idle keepalives_interval krbsrvname load_balance_hosts
  lock_timeout options passfile password pgbouncer port query_timeout replication require_auth requirepeer requiressl service ssl
  ssl_max_protocol_version ssl_min_protocol_version sslcert sslcertmode sslcompression sslcrl sslcrldir sslkey sslmode
  sslnegotiation sslpassword sslrootcert sslsni statement_timeout target_session_attrs tcp_user_timeout uselibpqcompat user`.split(
    /\s+/,
  ),
);

/** What `penstock check` and a start look at, without a connection. @throws as `parsePostgresUrl` */
export function checkPostgresUrl(text: string): void {
  parsePostgresUrl(text);
  if (!URL.canParse(text)) return;
  for (const name of new URL(text).searchParams.keys()) {
    if (name !== "schema" && name !== "pool" && !DRIVER_SETTINGS.has(name))
      throw new Error(`unknown setting ${name}; postgres: knows schema, pool, and those of the driver such as sslmode`);
  }
}

/** @throws Error with a message for the user. It holds nothing of the URL but names of settings */
export function parsePostgresUrl(text: string): PostgresSettings {
  // The driver says what is wrong with it.
  if (!URL.canParse(text)) return { url: text, schema: DEFAULT_SCHEMA, pool: DEFAULT_POOL };
  const url = new URL(text);
  const schema = url.searchParams.get("schema") ?? DEFAULT_SCHEMA;
  if (!SCHEMA.test(schema)) {
    throw new Error("schema must be a name of small letters, digits and _ that begins with no digit");
  }
  const pool = Number(url.searchParams.get("pool") ?? DEFAULT_POOL);
  if (!Number.isInteger(pool) || pool < SMALLEST_POOL || pool > LARGEST_POOL) {
    throw new Error(`pool must be a number of connections from ${SMALLEST_POOL} to ${LARGEST_POOL}`);
  }
  if (!url.searchParams.has("schema") && !url.searchParams.has("pool")) return { url: text, schema, pool };
  url.searchParams.delete("schema");
  url.searchParams.delete("pool");
  return { url: url.href, schema, pool };
}
