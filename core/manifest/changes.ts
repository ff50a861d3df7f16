/** The differences between two manifests, as paths without values, which may be secrets. */
import { isDeepStrictEqual } from "node:util";
import type { ManifestChange } from "../../generated/types.ts";
import type { Path } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { formatPath, type Manifest } from "./manifest.ts";

/** Changes in the order of the manifests. A list that differs is one change. */
export function manifestChanges(before: Manifest, after: Manifest): ManifestChange[] {
  const changes: ManifestChange[] = [];
  compare(before, after, []);
  return changes;

  function compare(left: unknown, right: unknown, path: Path): void {
    if (isObject(left) && isObject(right)) {
      for (const key of keysOf(left, right)) compare(own(left, key), own(right, key), [...path, key]);
    } else if (!isDeepStrictEqual(left, right)) {
      const change = left === undefined ? "added" : right === undefined ? "removed" : "changed";
      changes.push({ path: formatPath(path), change });
    }
  }
}

/** The paths among `patterns` at which the manifests differ; a `*` in a pattern stands for every key. */
export function changedAmong(patterns: readonly string[], before: Manifest, after: Manifest): string[] {
  const changed = new Set<string>();
  for (const pattern of patterns) look(before, after, pattern.split("."), []);
  return [...changed];

  function look(left: unknown, right: unknown, [key, ...rest]: readonly string[], path: Path): void {
    if (key === undefined) {
      if (!isDeepStrictEqual(left, right)) changed.add(formatPath(path));
      return;
    }
    for (const name of key === "*" ? keysOf(left, right) : [key])
      look(own(left, name), own(right, name), rest, [...path, name]);
  }
}

const keysOf = (...values: unknown[]): Set<string> =>
  new Set(values.flatMap((value) => (isObject(value) ? Object.keys(value) : [])));

const own = (value: unknown, key: string): unknown =>
  isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined;
