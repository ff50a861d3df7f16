import { defineStep } from "#plugin";

export default defineStep({
  description: "Writes what passes by to the log",
  execute: ({ data, executionId, logger }) => {
    logger.info({ executionId, data }, "audit");
    return data;
  },
});
