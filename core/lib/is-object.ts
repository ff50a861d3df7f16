import { invalid } from "./errors.ts";

/** An object of which nothing is known yet. */
export type Fields = Readonly<Record<string, unknown>>;

/** Whether a value is an object in the sense of JSON: neither a list nor null. */
export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The text in a field. @throws ServiceError `invalid_input` that names it when there is none */
export function textAt(fields: Fields, key: string, path: string): string {
  const value = fields[key];
  if (typeof value !== "string") throw invalid(`${path}.${key} must be string`);
  return value;
}

/**
 * The objects of a list, each with its place.
 *
 * @param kind what else may be there
 * @throws ServiceError `invalid_input` for what is no such list
 */
export function objectsIn(list: unknown, path: string, kind = "string or array"): [fields: Fields, path: string][] {
  if (!Array.isArray(list)) throw invalid(`${path} must be ${kind}`);
  return list.map((each, index) => {
    const here = `${path}[${index}]`;
    if (!isObject(each)) throw invalid(`${here} must be object`);
    return [each, here];
  });
}
