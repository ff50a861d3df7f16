/** How failures are written below the paths of a protocol that has a form of its own for them. */
import type { ErrorForm } from "./encode.ts";
import type { Route } from "./route.ts";

/** Undefined: as the JSON envelope. */
export type ErrorsAt = (path: string) => ErrorForm | undefined;

/** A request, or a handshake, that no route answers is refused as the routes refuse that share the first segment of its path. */
export function errorsByPath(routes: readonly Pick<Route<never>, "path" | "errors">[]): ErrorsAt {
  const forms = new Map(routes.flatMap(({ path, errors }) => (errors === undefined ? [] : [[firstOf(path), errors]])));
  return forms.size === 0 ? () => undefined : (path) => forms.get(firstOf(path));
}

const firstOf = (path: string): string => path.split("/", 2)[1] ?? "";
