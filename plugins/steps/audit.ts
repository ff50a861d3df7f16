/** An example beside service.yaml: a step that logs its data. service.yaml uses it. */
import { defineStep } from "#plugin";

export default defineStep({
  description: "Writes what passes by to the log",
  execute: ({ data, logger }) => {
    logger.info({ data }, "audit");
    return data;
  },
});
