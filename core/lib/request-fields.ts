/** Reads objects of a request of which nothing is known yet. Errors name the field. */
import { invalid } from "./errors.ts";
import { type Fields, isObject } from "./is-object.ts";

/** @throws ServiceError `invalid_input` unless the field is a text */
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
