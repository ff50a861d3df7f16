/** What plugins get from the service (`Host`), and the end of it, which the service alone may bring about. */
import type { Logger } from "pino";
import { messageOf } from "../errors.ts";
import type { Host } from "../plugin.ts";

export interface OwnedHost extends Host {
  /** Aborts `signal`, then runs the `onClose` callbacks, last first, one after the other. A second call does nothing more. */
  close(): Promise<void>;
}

export interface HostOptions {
  logger: Logger;
  env: Readonly<Record<string, string | undefined>>;
}

export function createHost(options: HostOptions): OwnedHost {
  const controller = new AbortController();
  const callbacks: (() => void | Promise<void>)[] = [];
  let closing: Promise<void> | undefined;

  async function runCallbacks(): Promise<void> {
    controller.abort(new Error("the service is stopping"));
    for (let callback = callbacks.pop(); callback !== undefined; callback = callbacks.pop()) {
      try {
        await callback();
      } catch (error) {
        // The others must still run: each holds a resource of its own.
        options.logger.warn({ err: error }, `onClose of a plugin failed: ${messageOf(error)}`);
      }
    }
  }

  return {
    logger: options.logger,
    env: options.env,
    signal: controller.signal,
    onClose: (callback) => void callbacks.push(callback),
    close: () => {
      closing ??= runCallbacks();
      return closing;
    },
  };
}
