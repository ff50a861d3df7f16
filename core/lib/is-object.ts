/** An object of which nothing is known yet. */
export type Fields = Readonly<Record<string, unknown>>;

/** Whether a value is an object in the sense of JSON: neither a list nor null. */
export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
