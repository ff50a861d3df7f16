/** What leads to the machine, closed: it throws when it is used. */
import { readdirSync, readFileSync } from "node:fs";
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

/** The schemas of a checkout are part of the source. */
const SCHEMAS = new URL("../../schemas/", import.meta.url).href;
const isSchema = (path: unknown): path is URL => path instanceof URL && path.href.startsWith(SCHEMAS);

/** `node:fs` for what may read them alone. */
export const schemaFiles: Module = {
  ...closed("fs", []),
  readFileSync: (path: unknown) => (isSchema(path) ? readFileSync(path, "utf8") : leaves(`reading ${path}`)()),
  readdirSync: (path: unknown) => (isSchema(path) ? readdirSync(path) : leaves(`reading ${path}`)()),
};

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
