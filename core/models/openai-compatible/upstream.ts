/** The provider's server: its connections, and the settings that all calls share. */
import type { Aborts } from "../../lib/aborts.ts";
import { VERSION } from "../../lib/version.ts";
import type { Host, ModelTimeouts } from "../../plugin/plugin.ts";
import { createConnections, type Receiver, UpstreamCall } from "./upstream-call.ts";

interface UpstreamConfig {
  readonly baseURL: URL;
  readonly apiKey: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly queryParams: Readonly<Record<string, string>>;
  readonly connections?: number | undefined;
  readonly queue: number;
  readonly intercept: Host["intercept"];
}

/** An endpoint below the base URL. */
export interface Endpoint {
  readonly url: string;
  /** @param headers for this call only, beside those of all calls */
  post(
    body: string,
    receiver: Receiver,
    timeouts: ModelTimeouts,
    aborts: Aborts | undefined,
    headers?: Readonly<Record<string, string | undefined>>,
  ): UpstreamCall;
}

interface Upstream {
  endpoint(path: string): Endpoint;
  /** Closes every connection at once. */
  close(): Promise<void>;
}

export function createUpstream(config: UpstreamConfig): Upstream {
  const { baseURL, apiKey, connections: limit, queue, intercept } = config;
  const connections = createConnections(baseURL.origin, { connections: limit, queue, intercept });
  const common = {
    "content-type": "application/json",
    // Compression would hold pieces of a stream back. What is compressed all the same, as by a proxy, is read.
    "accept-encoding": "identity",
    "user-agent": `penstock/${VERSION}`,
    ...(apiKey === "" ? {} : { authorization: `Bearer ${apiKey}` }),
    ...lowerCase(config.headers),
  };
  const commonList = toList(common);
  return {
    endpoint(name) {
      const search = new URLSearchParams([...baseURL.searchParams, ...Object.entries(config.queryParams)]).toString();
      const path = baseURL.pathname.replace(/\/$/, "") + name + (search === "" ? "" : `?${search}`);
      return {
        url: baseURL.origin + path,
        post(body, receiver, timeouts, aborts, extra) {
          const headers = extra === undefined ? commonList : toList({ ...common, ...lowerCase(extra) });
          return new UpstreamCall(connections, timeouts, { path, headers, body }, receiver, aborts);
        },
      };
    },
    close: () => connections.close(),
  };
}

const lowerCase = (headers: Readonly<Record<string, string | undefined>>): Record<string, string | undefined> =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));

/** Alternating names and values, as they are written to the socket. */
const toList = (headers: Readonly<Record<string, string | undefined>>): string[] =>
  Object.entries(headers).flatMap(([name, value]) => (value === undefined ? [] : [name, value]));
