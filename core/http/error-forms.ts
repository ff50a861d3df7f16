/** Chooses the format of failures by path: a protocol may have one of its own. */
import type { ErrorForm } from "./encode.ts";
import type { Route } from "./route.ts";

/** Returns the format of failures at a path; undefined stands for the JSON envelope. */
export type ErrorsAt = (path: string) => ErrorForm | undefined;

/** For a request that no route answers, the format is that of the routes which share the first segment of its path. */
export function errorsByPath(routes: readonly Pick<Route<never>, "path" | "errors">[]): ErrorsAt {
  const forms = new Map(routes.flatMap(({ path, errors }) => (errors === undefined ? [] : [[firstOf(path), errors]])));
  return forms.size === 0 ? () => undefined : (path) => forms.get(firstOf(path));
}

const firstOf = (path: string): string => path.split("/", 2)[1] ?? "";
