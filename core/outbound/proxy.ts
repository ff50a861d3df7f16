/** How calls leave the process: directly, or through a proxy. The setting is one for the process, as the environment is. */
import type { Agent, EnvHttpProxyAgent } from "undici";

type Environment = Readonly<Record<string, string | undefined>>;
type Undici = typeof import("undici")["default"];
export type OutboundAgent = Agent | EnvHttpProxyAgent;

interface Proxies {
  readonly httpProxy: string;
  readonly httpsProxy: string;
  readonly noProxy: string;
}

/** `proxies` is null without a proxy. `fetchAgent` is that of `outboundFetch`. */
const state: { proxies: Proxies | null; fetchAgent: OutboundAgent | null } = { proxies: null, fetchAgent: null };

/**
 * Applies to the agents that are created from now on, and to every `outboundFetch`.
 *
 * @param setting `env`: what HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY say, in upper or lower case; `off`; or an address
 * @returns what is wrong with the address of a proxy, which is not used then; else null
 */
export function useProxy(setting: string, env: Environment): string | null {
  const read = (name: string) => env[name.toLowerCase()] || env[name] || "";
  const other = read("ALL_PROXY");
  const given = setting === "env" ? [read("HTTP_PROXY") || other, read("HTTPS_PROXY") || other] : [setting, setting];
  const [httpProxy, httpsProxy] = given.map((text) => (text === "" || text.includes("://") ? text : `http://${text}`));
  void state.fetchAgent?.close();
  state.fetchAgent = null;
  state.proxies = null;
  if (setting === "off" || (httpProxy === "" && httpsProxy === "")) return null;
  if (![httpProxy, httpsProxy].every((text) => text === "" || URL.canParse(text!)))
    return "the address of the proxy is not a URL";
  state.proxies = { httpProxy: httpProxy!, httpsProxy: httpsProxy!, noProxy: read("NO_PROXY") };
  return null;
}

export const hasProxy = (): boolean => state.proxies !== null;

/** The setting, for programs that this one starts. */
export const proxyVariables = (): Record<string, string> =>
  state.proxies === null
    ? {}
    : { HTTP_PROXY: state.proxies.httpProxy, HTTPS_PROXY: state.proxies.httpsProxy, NO_PROXY: state.proxies.noProxy };

/** An http address is asked of the proxy as it is, since many open tunnels for https alone. */
export function createOutboundAgent(undici: Undici, options: Agent.Options): OutboundAgent {
  if (state.proxies === null) return new undici.Agent(options);
  // The type of the default export leaves it out.
  const { EnvHttpProxyAgent: ProxiedAgent } = undici as unknown as typeof import("undici");
  return new ProxiedAgent({ ...options, ...state.proxies, proxyTunnel: false });
}

/** `fetch`, through the proxy where there is one. */
export const outboundFetch = async (target: string | URL, init?: RequestInit): Promise<Response> => {
  if (state.proxies === null) return fetch(target, init);
  const { default: undici } = await import("undici");
  state.fetchAgent ??= createOutboundAgent(undici, {});
  const options = { ...init, dispatcher: state.fetchAgent } as unknown as Parameters<Undici["fetch"]>[1];
  return (await undici.fetch(target, options)) as unknown as Response;
};
