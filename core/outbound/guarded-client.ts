/** Sends requests to addresses that clients have named: to those alone that the manifest allows. */
import undici, { type Dispatcher } from "undici";
import type { AllowedAddresses } from "./allowed-addresses.ts";
import { createOutboundAgent, hasProxy } from "./proxy.ts";

const CONNECT_TIMEOUT_MS = 5_000;

export class GuardedClient {
  readonly #allowed: () => AllowedAddresses;
  readonly #agent;

  /** @param allowed asked with every request, as the manifest may change */
  constructor(allowed: () => AllowedAddresses) {
    this.#allowed = allowed;
    // Sockets connect to the addresses that were checked: a second lookup of a name could give others.
    const lookup: AllowedAddresses["lookup"] = (...parameters) => allowed().lookup(...parameters);
    this.#agent = createOutboundAgent(undici, { connect: { lookup, timeout: CONNECT_TIMEOUT_MS } });
  }

  /** Does not follow redirects. */
  async request(
    url: URL,
    options: Omit<Dispatcher.RequestOptions, "origin" | "path" | "method"> & { method?: Dispatcher.HttpMethod },
  ): Promise<Dispatcher.ResponseData> {
    const { hostname } = url;
    if (!this.#allowed().allowsHost(hostname)) throw new Error(`${hostname} is a private address`);
    if (hasProxy()) await this.#allowed().checkName(hostname);
    return undici.request(url, { ...options, dispatcher: this.#agent });
  }

  /** Closes every connection at once. */
  readonly close = (): Promise<void> => this.#agent.destroy();
}
