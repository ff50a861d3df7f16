/** The addresses under which the service is known, from its manifest: they tell its own pages and hosts from foreign ones. */
import { bracketed, hostName, isLoopback } from "../lib/host-name.ts";
import type { ServerManifest } from "../manifest/manifest.ts";
import { type ClientOf, compileClients, compileTrust } from "./client.ts";

export interface Site {
  /** Whether requests for unknown hosts are refused: when there is no authentication, and only this machine can connect or hosts are listed. */
  readonly onlyKnownHosts: boolean;
  /** Whether the service is known by this host, given with or without a port. */
  isKnown(host: string): boolean;
  /** Origin of `server.publicUrl`; null without one. */
  readonly publicOrigin: string | null;
  /** Whether a peer is a trusted proxy; null when there are none. */
  readonly trusts: ((peer: string) => boolean) | null;
  readonly clientOf: ClientOf;
}

type Settings = Pick<ServerManifest, "publicUrl" | "allowedHosts" | "trustedProxies">;

/** Bound of the cache of hosts that were checked. The clients of a service use few. */
const MAX_REMEMBERED_HOSTS = 32;

export function compileSite({ publicUrl, allowedHosts, trustedProxies }: Settings, onlyKnownHosts: boolean): Site {
  const origin = publicUrl === undefined ? null : new URL(publicUrl);
  const names = new Set(allowedHosts.map((host) => hostName(bracketed(host))));
  if (origin !== null) names.add(hostName(origin.host));
  names.delete(null);
  const remembered = new Set<string>();
  return {
    onlyKnownHosts,
    isKnown(host) {
      if (remembered.has(host)) return true;
      const name = hostName(host);
      if (name === null || !(isLoopback(name) || names.has(name))) return false;
      if (remembered.size === MAX_REMEMBERED_HOSTS) remembered.clear();
      remembered.add(host);
      return true;
    },
    publicOrigin: origin?.origin ?? null,
    trusts: trustedProxies.length === 0 ? null : compileTrust(trustedProxies),
    clientOf: compileClients(trustedProxies),
  };
}
