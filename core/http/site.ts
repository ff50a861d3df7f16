/** Where a service is reached, as its manifest says: what tells its own pages, and names that lead here, from those of strangers. */
import { bracketed, hostName, isLoopback } from "../lib/host-name.ts";
import type { ServerManifest } from "../manifest/manifest.ts";
import { type ClientOf, compileClients, compileTrust } from "./client.ts";

export interface Site {
  /** Whether requests for any other host are refused: where nobody proves who he is, and only this machine can connect. */
  readonly onlyKnownHosts: boolean;
  /** Whether a host, with its port or without, is one that the service is known by. */
  isKnown(host: string): boolean;
  /** Origin of `server.publicUrl`; null without one. */
  readonly publicOrigin: string | null;
  /** Whether what a peer says of its clients is believed; null where nobody is. */
  readonly trusts: ((peer: string) => boolean) | null;
  readonly clientOf: ClientOf;
}

type Settings = Pick<ServerManifest, "publicUrl" | "allowedHosts" | "trustedProxies">;

/** Spellings of known hosts that are remembered: clients of one service write few. */
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
