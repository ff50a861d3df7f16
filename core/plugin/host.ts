/** What a plugin gets from the service that makes it. */
import type Keyv from "keyv";
import type { Logger } from "pino";
import type { Dispatcher } from "undici";

/** What the host gives to `create`. `signal` aborts when the service stops; `onClose` callbacks run then, last one first. */
export interface Host {
  /** The key in the manifest of the instance, where it has one: `openai` for `providers.openai`. */
  readonly name?: string;
  readonly logger: Logger;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
  onClose(callback: () => void | Promise<void>): void;
  /**
   * A Keyv in the service's store: values may have a time to live, and errors are thrown. Each namespace has data of its own, which
   * all processes on a shared store see. It may be used once the service runs: calls before that wait for the store.
   */
  keyv(namespace: string): Keyv;
  /**
   * For providers, while `serve` records or replays what they answer: goes between the provider and its connections, as in
   * `dispatcher.compose(intercept)` of undici.
   */
  readonly intercept?: Dispatcher.DispatcherComposeInterceptor;
}
