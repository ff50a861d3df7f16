/** Loggers with bindings, which are created only when something is logged. */
import type { Logger } from "pino";

/** A child of `logger` with these bindings, except for those that it has already. */
export function boundLogger(logger: Logger, names: Readonly<Record<string, string | undefined>>): Logger {
  const bound = logger.bindings();
  const more = Object.entries(names).filter(([name, value]) => value !== undefined && bound[name] !== value);
  return more.length === 0 ? logger : logger.child(Object.fromEntries(more));
}
