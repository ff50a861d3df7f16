/**
 * Where a request comes from. Behind a trusted proxy X-Forwarded-For, -Proto and -Host tell; from any other peer these headers are
 * ignored. `Forwarded` (RFC 7239) is not read: a proxy that sets one kind of header passes the other on as the client sent it.
 */
import { BlockList, isIP } from "node:net";

export interface Client {
  /** IPv4 or IPv6 as text. Empty when it is first read after the client has left. */
  readonly address: string;
  readonly scheme: "http" | "https";
  /** The host, with the port if there is one, that the client asked for. */
  readonly host: string;
  /** `https://api.example.com`, as the client sees the service through a trusted proxy; null without one. */
  readonly origin: string | null;
}

/** Returns a header of the request by its lower-case name; an empty string when absent. */
type Header = (name: string) => string;

/** @param peer address of the other end of the connection */
export type ClientOf = (peer: string, header: Header) => Client;

/** @param networks addresses and CIDRs of trusted proxies, checked at boot */
export function compileClients(networks: readonly string[]): ClientOf {
  if (networks.length === 0) return direct;
  const trusts = compileTrust(networks);
  return (peer, header) => (trusts(peer) ? behind(peer, header, trusts) : direct(peer, header));
}

/** Tells whether an address is that of a trusted proxy. */
export function compileTrust(networks: readonly string[]): (address: string) => boolean {
  const trusted = new BlockList();
  for (const network of networks) addNetwork(trusted, network);
  return (address) => {
    const known = bare(address);
    const version = isIP(known);
    return version !== 0 && trusted.check(known, version === 6 ? "ipv6" : "ipv4");
  };
}

const direct: ClientOf = (address, header) => ({ address, scheme: "http", host: header("host"), origin: null });

function addNetwork(list: BlockList, network: string): void {
  const [address = "", bits] = network.split("/");
  const family = isIP(address) === 6 ? "ipv6" : "ipv4";
  if (bits === undefined) list.addAddress(address, family);
  else list.addSubnet(address, Number(bits), family);
}

/** The client behind trusted proxies. Each appends its peer's address, so the last address that is not trusted is the client's. */
function behind(peer: string, header: Header, trusts: (address: string) => boolean): Client {
  const hops = splitList(header("x-forwarded-for"));
  let address = peer;
  let passed = 0;
  for (const hop of hops.reverse()) {
    const before = addressIn(hop);
    // Hidden (`unknown`) or malformed: whatever stands before it cannot be trusted.
    if (before === null) break;
    address = before;
    passed++;
    if (!trusts(before)) break;
  }
  // With a chain of proxies these headers too may hold a list, or only the value of the outermost proxy.
  const told = (name: string) => {
    const list = splitList(header(name));
    return list[Math.max(0, list.length - Math.max(passed, 1))] ?? "";
  };
  const scheme = told("x-forwarded-proto").toLowerCase() === "https" ? "https" : "http";
  const forwarded = told("x-forwarded-host");
  const host = HOST.test(forwarded) ? forwarded : header("host");
  return { address, scheme, host, origin: HOST.test(host) ? `${scheme}://${host}` : null };
}

const HOST = /^(?:[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?$/;

export const splitList = (value: string): string[] => (value === "" ? [] : value.split(",").map((item) => item.trim()));

/** Extracts the address: `203.0.113.7`, `203.0.113.7:4711`, `2001:db8::1`, `[2001:db8::1]:4711`; null for anything else. */
function addressIn(hop: string): string | null {
  const found = /^\[([^\]]+)\](?::\d+)?$/.exec(hop)?.[1] ?? /^([\d.]+):\d+$/.exec(hop)?.[1] ?? hop;
  const address = bare(found);
  return isIP(address) === 0 ? null : address;
}

/** Removes the zone of a link-local address, and unwraps an IPv4 address in IPv6 form. */
function bare(address: string): string {
  const unzoned = address.split("%", 1)[0]!;
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(unzoned)?.[1] ?? unzoned;
}
