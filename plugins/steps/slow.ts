/** An example beside service.yaml: a step that waits. service.yaml does not use it. */
import { setTimeout as sleep } from "node:timers/promises";
import { defineStep } from "#plugin";

export default defineStep({
  description: "Waits, then passes its data on",
  config: {
    type: "object",
    properties: { milliseconds: { type: "integer", minimum: 0, maximum: 60_000, default: 1000 } },
    additionalProperties: false,
  },
  execute: ({ data, config, signal }) => sleep(config.milliseconds, data, { signal }),
});
