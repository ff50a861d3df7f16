/** Stands in for the list of built-in plugins: the same, and what the load of a simulation needs. */
import { BUILT_IN_PLUGINS as BUILT_IN } from "../../../core/models/builtin.ts";
import { ServiceError, type StepContext, type ToolPluginCall } from "../../../core/plugin/plugin.ts";
import type { BuiltInPlugin } from "../../../core/registry/load.ts";

const pause = (milliseconds: number, signal?: AbortSignal) =>
  new Promise<void>((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new Error("aborted"));
    });
  });

const INPUT = {
  type: "object",
  properties: { what: { type: "string" }, milliseconds: { type: "number" } },
  required: ["what"],
  additionalProperties: false,
} as const;

/** A tool with an effect in the world outside, at the end of some time. */
const tool = (name: string, more: object = {}): BuiltInPlugin => ({
  kind: "tool",
  name,
  plugin: {
    kind: "tool",
    name,
    description: `Does ${name}`,
    parameters: INPUT,
    ...more,
    async execute(input: { what: string; milliseconds?: number }, call: ToolPluginCall) {
      simulated.effect(`${name} begins`, input.what, call.idempotencyKey);
      await pause(input.milliseconds ?? 500, call.signal);
      simulated.effect(name, input.what, call.idempotencyKey);
      return { done: input.what };
    },
  },
});

const step: BuiltInPlugin = {
  kind: "step",
  name: "act",
  plugin: {
    kind: "step",
    name: "act",
    async execute({ config, executionId, idempotencyKey, attempt, signal, input }: StepContext) {
      simulated.effect(`${config.name} begins`, executionId, idempotencyKey);
      await pause(config.milliseconds ?? 300, signal);
      simulated.effect(config.name, executionId, idempotencyKey);
      if (attempt <= (config.fails ?? 0)) throw new Error("it fails at first");
      return { ...input, [config.name]: true };
    },
  },
};

/** Users by their tokens, which are their names. */
const auth: BuiltInPlugin = {
  kind: "auth",
  name: "names",
  plugin: {
    kind: "auth",
    name: "names",
    create: () => ({
      type: "names",
      async verifyToken(token: string) {
        if (!token.startsWith("user-")) throw new ServiceError("unauthorized", "nobody");
        return { id: token };
      },
    }),
  },
};

export const BUILT_IN_PLUGINS: readonly BuiltInPlugin[] = [
  ...BUILT_IN,
  tool("act"),
  tool("pay", { approval: true, expires: "10m" }),
  step,
  auth,
];
