/** Splits request targets, and normalizes addresses, for the transports. */
const AUTHORITY = /^https?:\/\/([^/?#]*)/i;

/** The host of a target in absolute form, which takes precedence over the header `Host` (RFC 9112, 3.2.2); null for other forms. */
export function hostInTarget(target: string): string | null {
  if (target.charCodeAt(0) === 47) return null;
  const authority = AUTHORITY.exec(target)?.[1];
  return authority === undefined ? null : authority.slice(authority.lastIndexOf("@") + 1);
}

/**
 * `/a/b?c=d` -> `{ path: "/a/b", query: "c=d" }`, without decoding. The absolute form (`GET http://host/a`) loses its
 * scheme and authority. Null for a target that is not a path (`*`, `host:443`).
 */
export function splitTarget(target: string): { path: string; query: string } | null {
  let rest = target;
  if (rest.charCodeAt(0) !== 47) {
    const authority = AUTHORITY.exec(rest);
    if (authority === null) return null;
    rest = rest.slice(authority[0].length);
    if (rest.charCodeAt(0) !== 47) rest = `/${rest}`;
  }
  const mark = rest.indexOf("?");
  return mark < 0 ? { path: rest, query: "" } : { path: rest.slice(0, mark), query: rest.slice(mark + 1) };
}

/** `::ffff:10.0.0.1` and `0000:0000:0000:0000:0000:ffff:0a00:0001` -> `10.0.0.1`; other addresses are unchanged. */
export function normalizeAddress(address: string): string {
  const dotted = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address);
  if (dotted !== null) return dotted[1]!;
  const mapped = /^(?:0{1,4}:){5}ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/i.exec(address);
  if (mapped === null) return address;
  const high = Number.parseInt(mapped[1]!, 16);
  const low = Number.parseInt(mapped[2]!, 16);
  return `${high >> 8}.${high & 255}.${low >> 8}.${low & 255}`;
}
