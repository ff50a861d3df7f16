/** Makes the rows of the routes table: a verb, the path, the operation, its summary, and what is special about it. */
import type { Service } from "../../app/service.ts";
import { type ErrorForm, enveloped } from "../../http/encode.ts";
import type { InputSchemaId, Method, Route, RouteOutput } from "../../http/route.ts";
import type { ErrorKind } from "../../lib/errors.ts";

type Row<Q extends InputSchemaId | undefined, B extends InputSchemaId | undefined> = Route<Service, Q, B>;

/** What a row says beside its verb, path, operation and summary. */
type Details<Q extends InputSchemaId | undefined, B extends InputSchemaId | undefined> = Omit<
  Row<Q, B>,
  "method" | "path" | "operation" | "summary" | "group" | "output"
> & {
  /** Default: that of the verb. */
  group?: Row<Q, B>["group"];
  /** The name of a schema stands for a value of it in the envelope. */
  output: RouteOutput | Extract<RouteOutput, { json: unknown }>["json"];
};

/** Rows of one verb. `query` and `body` of a row decide the types of its handler's input. */
const rowsOf =
  (method: Method, group: Route<Service>["group"] = "execution") =>
  <const Q extends InputSchemaId | undefined = undefined, const B extends InputSchemaId | undefined = undefined>(
    path: string,
    operation: string,
    summary: string,
    { output, ...details }: Details<Q, B>,
  ) =>
    ({
      method,
      path,
      operation,
      summary,
      group,
      ...details,
      output: typeof output === "string" ? { json: output } : output,
    }) as Route<Service>;

export const get = rowsOf("GET");
/** For operators: what is there, what is exposed, and what has happened. */
export const manage = rowsOf("GET", "management");
export const show = rowsOf("GET", "discovery");
export const observe = rowsOf("GET", "observability");
export const post = rowsOf("POST");
export const patch = rowsOf("PATCH");
export const del = rowsOf("DELETE");

/** The failures of a protocol over JSON-RPC: a body of another type is an error with this code, all others are the envelope. */
export function rpcErrors(code: number): ErrorForm {
  const form: ErrorForm = (error) => {
    const reply = enveloped(error);
    if (error.kind !== "unsupported_media_type") return reply;
    return { ...reply, body: JSON.stringify({ jsonrpc: "2.0", id: null, error: { code, message: error.message } }) };
  };
  form.schemaOf = (kind) => RPC_SCHEMAS[kind] ?? "ErrorEnvelope";
  return form;
}

/** Those that the protocol answers itself, some of them only once it has read the message. */
const RPC_SCHEMAS: Partial<Record<ErrorKind, string>> = {
  unsupported_media_type: "RpcFailure",
  method_not_allowed: "RpcFailure",
  not_acceptable: "RpcFailure",
  invalid_input: "RpcOrServiceFailure",
  internal: "RpcOrServiceFailure",
};
