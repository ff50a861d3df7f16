/** What the URL of PostgreSQL says to Penstock, and not to the driver. */

export interface PostgresSettings {
  /** The URL for the driver. */
  readonly url: string;
  /** Where the tables are. */
  readonly schema: string;
  /** Connections of this process at most. */
  readonly pool: number;
}

const DEFAULT_SCHEMA = "public";
/** Two that write, and eight that read. */
const DEFAULT_POOL = 10;
const SMALLEST_POOL = 3;
const LARGEST_POOL = 100;
/** No capital letters, which would need quotes wherever somebody types the name. */
const SCHEMA = /^[a-z_][a-z0-9_]{0,62}$/;

/** @throws Error with a message for the user */
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
