/** Makes the rows of the routes table: a verb, the path, the operation, its summary, and what is special about it. */
import type { Service } from "../../app/service.ts";
import type { InputSchemaId, Method, Route } from "../../http/route.ts";

/** What a row says beside its verb, path, operation and summary. The group is `execution` unless it says another. */
export type Details<Q extends InputSchemaId | undefined, B extends InputSchemaId | undefined> = Omit<
  Route<Service, Q, B>,
  "method" | "path" | "operation" | "summary" | "group"
> &
  Partial<Pick<Route<Service>, "group">>;

/** Rows of one verb. `query` and `body` of a row decide the types of its handler's input. */
const rowsOf =
  (method: Method) =>
  <const Q extends InputSchemaId | undefined = undefined, const B extends InputSchemaId | undefined = undefined>(
    path: string,
    operation: string,
    summary: string,
    details: Details<Q, B>,
  ) =>
    ({ method, path, operation, summary, group: "execution", ...details }) as Route<Service>;

export const get = rowsOf("GET");
export const post = rowsOf("POST");
export const patch = rowsOf("PATCH");
export const del = rowsOf("DELETE");
