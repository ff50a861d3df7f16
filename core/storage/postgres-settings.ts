/** What the URL of PostgreSQL says to Penstock, and not to the driver. */

export interface PostgresSettings {
  /** The URL for the driver, for each of the servers, in the order in which they are tried. */
  readonly urls: readonly string[];
  /** Where the tables are. */
  readonly schema: string;
  /** Connections of this process at most. */
  readonly pool: number;
  /** Milliseconds for a new connection. */
  readonly connectTimeout: number;
  /** Whether an engine may be one that is not known to work. */
  readonly unverified: boolean;
}

export const isPostgresUrl = (url: string): boolean => /^postgres(ql)?:/.test(url);

/** Two that write, and eight that read. */
const DEFAULT_POOL = 10;
const SMALLEST_POOL = 3;
const LARGEST_POOL = 100;
const CONNECT_TIMEOUT_MS = 5_000;
/** Where another server may be the right one. */
const CONNECT_TIMEOUT_OF_SEVERAL_MS = 2_000;

const any = /^/;
/** What is carried out, and with which values. Everything else is refused, since whoever writes a setting counts on it. */
const SETTINGS: Readonly<Record<string, readonly [values: RegExp, expected: string]>> = {
  // No capital letters, which would need quotes wherever somebody types the name.
  schema: [/^[a-z_][a-z0-9_]{0,62}$/, "a name of small letters, digits and _ that begins with no digit"],
  pool: [/^\d+$/, `a number of connections from ${SMALLEST_POOL} to ${LARGEST_POOL}`],
  engine: [/^unverified$/, "unverified, or left out"],
  connect_timeout: [/^[1-9]\d{0,3}$/, "seconds"],
  target_session_attrs: [/^(?:read-write|primary)$/, "read-write or primary: a store is written"],
  load_balance_hosts: [/^disable$/, "disable: hosts are tried in order"],
  gssencmode: [/^(?:disable|prefer)$/, "disable: connections are encrypted by TLS"],
  channel_binding: [/^(?:disable|prefer|require)$/, "disable, prefer or require"],
  keepalives: [/^1$/, "1: the system watches every connection"],
  ...Object.fromEntries(
    `application_name client_encoding host idle_in_transaction_session_timeout lock_timeout options password pgbouncer port
     query_timeout ssl sslcert sslkey sslmode sslnegotiation sslrootcert statement_timeout uselibpqcompat user`
      .split(/\s+/)
      .map((name) => [name, [any, ""]]),
  ),
};

/** Those that the driver must not see. */
const OWN = ["schema", "pool", "engine", "connect_timeout", "target_session_attrs", "load_balance_hosts"];

/** Also what `penstock check` looks at, without a connection. @throws Error with a message for the user. It holds nothing of the URL but names of settings */
export function parsePostgresUrl(text: string): PostgresSettings {
  const urls = hostsOf(text);
  const { searchParams } = urls[0]!;
  for (const [name, value] of searchParams) {
    const known = Object.hasOwn(SETTINGS, name) ? SETTINGS[name] : undefined;
    if (known === undefined) {
      const names = Object.keys(SETTINGS).sort().join(", ");
      throw new Error(`the setting ${name} is unknown, or one that is not carried out; postgres: knows ${names}`);
    }
    if (!known[0].test(value)) throw new Error(`${name} must be ${known[1]}`);
  }
  const pool = Number(searchParams.get("pool") ?? DEFAULT_POOL);
  if (pool < SMALLEST_POOL || pool > LARGEST_POOL) throw new Error(`pool must be ${SETTINGS.pool![1]}`);
  const seconds = searchParams.get("connect_timeout");
  const unset = urls.length === 1 ? CONNECT_TIMEOUT_MS : CONNECT_TIMEOUT_OF_SEVERAL_MS;
  const schema = searchParams.get("schema") ?? "public";
  const unverified = searchParams.has("engine");
  for (const url of urls) for (const name of OWN) url.searchParams.delete(name);
  return {
    urls: urls.map(({ href }) => href),
    schema,
    pool,
    connectTimeout: seconds === null ? unset : 1_000 * Number(seconds),
    unverified,
  };
}

/** A URL for each host: they stand before the path as `one:5432,other:5432`, or in `host` and `port`, each a list. */
function hostsOf(text: string): URL[] {
  const [, scheme, user = "", hosts = "", rest = ""] = /^(\w+:\/\/)([^/?#]*@)?([^/?#]*)(.*)$/s.exec(text) ?? [];
  const each = hosts.split(",");
  const urls = each.map((host) => `${scheme}${user}${host || (user && "localhost")}${rest}`);
  if (scheme === undefined || (each.length > 1 && each.includes("")) || !urls.every((url) => URL.canParse(url)))
    throw new Error(
      "it is no URL: postgres://USER:PASSWORD@HOST:PORT/DATABASE was expected, with a list of hosts HOST:PORT,HOST:PORT",
    );
  const list = (name: string) => new URL(urls[0]!).searchParams.get(name)?.split(",") ?? [];
  const [names, ports] = [list("host"), list("port")];
  if (ports.length > 1 && ports.length !== names.length) throw new Error("port must be one, or one for each host");
  if (names.length < 2) return urls.map((url) => new URL(url));
  return names.map((host, index) => {
    const url = new URL(urls[0]!);
    url.searchParams.set("host", host);
    if (ports.length > 0) url.searchParams.set("port", ports[index] ?? ports[0]!);
    return url;
  });
}
