/** Who else may use a store, and for how long it keeps what it is given. */
import type { Store } from "./store.ts";

/** Stores of one process alone. */
const OWN = new Set(["memory", "sqlite"]);

/** Whether other processes may use the store at the same time: of one that is not shared, all that is left open was left behind. */
export const isShared = ({ kind }: Pick<Store, "kind">): boolean => !OWN.has(kind);

/** Whether the store ends with the process. */
export const isVolatile = ({ kind }: Pick<Store, "kind">): boolean => kind === "memory";
