/** What goes wrong with the model of the many calls, and how often. */

/** Of all calls, for each kind. */
export const FAULT_SHARE = 0.01;
export const FAULT_KINDS = ["reset", "stall", "cut", "429", "500", "garbage"] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];
