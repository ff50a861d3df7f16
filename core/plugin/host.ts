/** What a plugin gets from the service that makes it. */
import type Keyv from "keyv";
import type { Logger } from "pino";

/** What the host gives to `create`. `signal` aborts when the service stops; `onClose` callbacks run then, last first. */
export interface Host {
  /** The key in the manifest of what is made, where it has one: `openai` for `providers.openai`. */
  readonly name?: string;
  readonly logger: Logger;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
  onClose(callback: () => void | Promise<void>): void;
  /**
   * A Keyv of the plugin's own, kept in the service's store: with time to live, and with errors thrown. Namespaces do not see
   * each other; the same namespace is the same data, in every process on a shared store. It may be used once the service runs:
   * what is asked for before waits for the store.
   */
  keyv(namespace: string): Keyv;
}
