/** Creates the `Host` for plugins, with a `close` that only the service has. */
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import type { Host } from "../plugin/plugin.ts";

export interface OwnedHost extends Host {
  /** Aborts `signal`, then runs the `onClose` callbacks one after the other, the last one first. May be called again. */
  close(): Promise<void>;
}

interface HostOptions {
  logger: Logger;
  env: Readonly<Record<string, string | undefined>>;
  /** Default: throws, because there is no store. */
  keyv?: Host["keyv"];
}

/** Time limit of each callback: a plugin that hangs must not keep the service from stopping. */
const ON_CLOSE_TIMEOUT_MS = 5_000;

export function createHost(options: HostOptions): OwnedHost {
  const controller = new AbortController();
  const callbacks: (() => void | Promise<void>)[] = [];
  let closing: Promise<void> | undefined;

  async function runCallbacks(): Promise<void> {
    controller.abort(new Error("the service is stopping"));
    for (let callback = callbacks.pop(); callback !== undefined; callback = callbacks.pop()) {
      try {
        await inTime(ON_CLOSE_TIMEOUT_MS, callback());
      } catch (error) {
        // The other callbacks must still run: each releases a resource of its own.
        options.logger.warn({ err: error }, `onClose of a plugin failed: ${messageOf(error)}`);
      }
    }
  }

  return {
    logger: options.logger,
    env: options.env,
    signal: controller.signal,
    keyv: options.keyv ?? withoutStore,
    onClose: (callback) => void callbacks.push(callback),
    close: () => {
      closing ??= runCallbacks();
      return closing;
    },
  };
}

function withoutStore(): never {
  throw new Error("host.keyv: there is no store here");
}

/** @throws Error when it takes longer */
export async function inTime<T>(milliseconds: number, work: T | Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`it took longer than ${milliseconds / 1000} s`)), milliseconds);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
