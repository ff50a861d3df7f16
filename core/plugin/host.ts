/** What a plugin gets from the service that creates it. */
import type Keyv from "keyv";
import type { Logger } from "pino";
import type { Dispatcher } from "undici";

/** The argument of `create`. `signal` aborts when the service stops; then the `onClose` callbacks run, the last one first. */
export interface Host {
  /** The key of the instance in the manifest, if it has one: `openai` for `providers.openai`. */
  readonly name?: string;
  readonly logger: Logger;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
  onClose(callback: () => void | Promise<void>): void;
  /**
   * A Keyv in the service's store: values may have a time to live, and errors are thrown. Each namespace has its own data, which
   * all processes on a shared store see. Calls made before the service runs wait for the store.
   */
  keyv(namespace: string): Keyv;
  /**
   * Set for providers while `serve` records or replays their answers: put it between the provider and its connections, with
   * `dispatcher.compose(intercept)` of undici.
   */
  readonly intercept?: Dispatcher.DispatcherComposeInterceptor;
}
