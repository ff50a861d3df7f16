/** What leads to the machine, closed: it throws when it is used. */
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);

const leaves = (name: string) =>
  function leavesTheSimulation(): never {
    throw new Error(`${name} leaves the simulation`);
  };

type Module = Readonly<Record<string, unknown>>;

const MODULES = new Map<string, Module>();

/** A module of Node.js of which only what is named may be used. */
export function closed(name: string, allowed: readonly string[]): Module {
  const id = `${name} ${allowed}`;
  let module = MODULES.get(id);
  if (module === undefined) {
    const real = require(`node:${name}`) as Module;
    module = Object.fromEntries(
      Object.entries(real).map(([key, value]) =>
        allowed.includes(key) || typeof value !== "function" ? [key, value] : [key, leaves(`${name}.${key}`)],
      ),
    );
    MODULES.set(id, module);
  }
  return module;
}

class ClosedDate extends Date {
  constructor(...values: unknown[]) {
    if (values.length === 0) leaves("new Date()")();
    super(...(values as [number]));
  }
  static override now = leaves("Date.now()");
  static override [Symbol.hasInstance] = (value: unknown) => value instanceof Date;
}

const functions = (...names: string[]) => Object.fromEntries(names.map((name) => [name, leaves(name)]));

/** Globals that lead out, or tell when memory is freed: nobody has them. */
const ABSENT = ["WebSocket", "EventSource", "BroadcastChannel", "MessageChannel", "FinalizationRegistry", "WeakRef"];

/** The globals that a process has its own of. */
export const CLOSED_GLOBALS: Module = {
  Date: ClosedDate,
  performance: functions("now"),
  ...functions("setTimeout", "setInterval", "setImmediate", "clearTimeout", "clearInterval", "clearImmediate", "fetch"),
  Math: Object.create(Math, { random: { value: leaves("Math.random") } }),
  AbortSignal: Object.assign(Object.create(AbortSignal), functions("timeout")),
  process: Object.create(process, { env: { value: {} } }),
  crypto: functions("randomUUID", "getRandomValues"),
  ...Object.fromEntries(ABSENT.map((name) => [name, undefined])),
};
