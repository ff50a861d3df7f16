/** The commands `executions list`, `end` and `retry`. */
import { isVolatile } from "../storage/store.ts";
import { EXECUTION_COMMANDS } from "../upkeep/store-commands.ts";
import { type Invocation, say } from "./invocation.ts";
import { withNamedStore } from "./named-store.ts";

export const executions = (command: keyof typeof EXECUTION_COMMANDS, invocation: Invocation): Promise<number> =>
  withNamedStore(
    invocation,
    async ({ open }) => {
      const { rest, user, reason } = invocation;
      const store = await open();
      try {
        if (isVolatile(store)) throw new Error("the store keeps nothing that a command could find");
        await EXECUTION_COMMANDS[command]({ store }, say, { id: rest[0]!, user, reason });
        return 0;
      } finally {
        await store.close();
      }
    },
    command,
  );
