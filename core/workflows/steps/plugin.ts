/** The work of a step that uses a step plugin. */

import { isThenable } from "../../lib/thenable.ts";
import type { Path } from "../../manifest/issues.ts";
import type { StepPlugin } from "../../plugin/plugin.ts";
import { configure } from "../../registry/create.ts";
import { Suspend, type Work, type WorkStep } from "../definition/definition.ts";
import type { LinkContext } from "../definition/linking.ts";
import { PluginCall } from "./plugin-call.ts";

interface PluginWork {
  readonly use: string;
  readonly with: Readonly<Record<string, unknown>> | undefined;
  readonly tap: boolean;
}

/** @returns null when there is no such plugin, or its settings are invalid */
export function compilePlugin(linking: LinkContext, work: PluginWork, at: Path): Work | null {
  const plugin = linking.parts.registry.get("step", work.use);
  if (plugin === undefined) {
    linking.missing.add(`step plugin ${JSON.stringify(work.use)}`);
    return null;
  }
  const { config, problem } = configure(plugin, work.with, { compiler: linking.parts.configs });
  if (config === null) {
    linking.problems.push({ path: [...at, "with"], message: problem });
    return null;
  }
  const run = work.tap ? runTap(plugin, config) : runPlugin(plugin, config);
  return { run, readOnly: plugin.readOnly ?? false };
}

const runPlugin =
  (plugin: StepPlugin, config: unknown): WorkStep["run"] =>
  (call) =>
    plugin.execute(new PluginCall(call, config));

/** A tap cannot suspend the execution. */
const runTap =
  (plugin: StepPlugin, config: unknown): WorkStep["run"] =>
  (call) => {
    const given = plugin.execute(new PluginCall(call, config));
    return isThenable(given) ? Promise.resolve(given).then(discardOutput) : discardOutput(given);
  };

function discardOutput(given: unknown): null {
  if (given instanceof Suspend) throw new Error("a step of andTap cannot suspend");
  return null;
}
