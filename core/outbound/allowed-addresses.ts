/** Which addresses a URL from a client may lead to: public ones, and private ones that the manifest allows. */
import { type LookupAddress, type LookupOptions, lookup } from "node:dns";
import { BlockList, isIP } from "node:net";
import { isAddress, isLoopback } from "../lib/host-name.ts";

/** The only public addresses of IPv6; unassigned ones may get any use. */
const PUBLIC_IPV6 = ["2000::/3"];
/**
 * Networks that are not on the public internet: this machine, private and shared networks, link-local (cloud metadata), multicast,
 * reserved, and those that embed an IPv4 address.
 */
const PRIVATE_NETWORKS = [
  ...["0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"],
  ...["192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"],
  ...["224.0.0.0/4", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"],
];

const LOOPBACK = ["127.0.0.1", "::1"];
const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;

function networks(list: readonly string[]): BlockList {
  const found = new BlockList();
  for (const entry of list) {
    const [address = "", bits] = entry.split("/");
    const family = isIP(address);
    if (family !== 0)
      found.addSubnet(address, Number(bits ?? (family === 4 ? 32 : 128)), family === 4 ? "ipv4" : "ipv6");
  }
  return found;
}

const contains = (list: BlockList, address: string): boolean =>
  list.check(address, isIP(address) === 4 ? "ipv4" : "ipv6");

type Found = (error: Error | null, address: string | LookupAddress[], family?: number) => void;

export class AllowedAddresses {
  readonly #private = networks(PRIVATE_NETWORKS);
  readonly #publicIPv6 = networks(PUBLIC_IPV6);
  readonly #allowed: BlockList;
  readonly #names: ReadonlySet<string>;

  /** @param allowPrivate host names, addresses or networks */
  constructor(allowPrivate: readonly string[]) {
    this.#allowed = networks(allowPrivate);
    this.#names = new Set(allowPrivate.map((name) => name.toLowerCase()));
  }

  /** Whether the host of a URL may be called. Names are accepted here, and checked when they are looked up. */
  allowsHost(hostname: string): boolean {
    const address = hostname.replace(/^\[|\]$/g, "");
    return isIP(address) === 0 || this.#allows(address);
  }

  /** Like `allowsHost`, for a name in a setting, which is not looked up now: names of this machine are recognised. */
  mayAllowHost(hostname: string): boolean {
    const name = hostname.replace(/\.$/, "");
    if (isAddress(name) || !isLoopback(name) || this.#names.has(name)) return this.allowsHost(hostname);
    return LOOPBACK.some((address) => this.#allows(address));
  }

  /** Whether a host that another service will call is at no private address, as far as that is known here. */
  async leadsOut(hostname: string): Promise<boolean> {
    if (!this.mayAllowHost(hostname)) return false;
    if (isAddress(hostname)) return true;
    return new Promise((resolve) => {
      // A name that has no address here may have one there: the errors of lookups have codes.
      this.lookup(hostname, {}, (error) => resolve(error === null || "code" in error));
    });
  }

  /** The lookup for sockets: they connect to the addresses that were checked, so that a second lookup cannot give others. */
  readonly lookup = (name: string, options: LookupOptions, found: Found): void => {
    lookup(name, { ...options, all: true }, (error, addresses) => {
      const wrong = this.#names.has(name.toLowerCase())
        ? undefined
        : addresses?.find((one) => !this.#allows(one.address));
      const [first] = addresses ?? [];
      if (error !== null) found(error, []);
      // The message does not name the address: clients must not explore a private network.
      else if (wrong !== undefined) found(new Error(`${name} is at a private address`), []);
      else if (options.all === true) found(null, addresses);
      else if (first === undefined) found(new Error(`${name} has no address`), []);
      else found(null, first.address, first.family);
    });
  };

  /**
   * For a call through a proxy, which looks the name up itself: refused where the name has a private address here. What this machine
   * does not find is left to the proxy.
   */
  checkName(hostname: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const name = hostname.replace(/^\[|\]$/g, "");
      this.lookup(name, {}, (error) => (error === null || "code" in error ? resolve() : reject(error)));
    });
  }

  #allows(given: string): boolean {
    const address = MAPPED.exec(given)?.[1] ?? given;
    if (contains(this.#allowed, address)) return true;
    return (isIP(address) === 4 || contains(this.#publicIPv6, address)) && !contains(this.#private, address);
  }
}
