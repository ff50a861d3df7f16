/** What requests carry, looked at before the SDK makes its own of it: it takes much for granted. */
import { validators } from "../../generated/validators.js";
import { invalid } from "../errors.ts";
import { type Check, requireValid } from "../http/decode.ts";
import type { InputSchemaId } from "../http/route.ts";

/** By method. Of others the SDK says that it does not know them, or that they are not supported. */
const SCHEMAS: Readonly<Record<string, InputSchemaId>> = {
  SendMessage: "PeerMessageRequest",
  SendStreamingMessage: "PeerMessageRequest",
  GetTask: "PeerTaskRequest",
  CancelTask: "PeerTaskRequest",
  SubscribeToTask: "PeerTaskRequest",
  ListTasks: "PeerTaskListRequest",
  "message/send": "PeerOldMessageRequest",
  "message/stream": "PeerOldMessageRequest",
  "tasks/get": "PeerTaskRequest",
  "tasks/cancel": "PeerTaskRequest",
  "tasks/resubscribe": "PeerTaskRequest",
};

/** A request of JSON-RPC. A list of them, which JSON-RPC has too, A2A does not. */
export interface RpcRequest {
  readonly id?: string | number | null;
  readonly method: string;
  readonly params?: unknown;
}

/** @throws ServiceError `invalid_input` for what is no request of JSON-RPC */
export function checkRequest(body: unknown): asserts body is RpcRequest {
  requireValid(validators.PeerRequest, body);
}

/** One of which a part of 1.0 has. */
const CONTENTS = ["text", "raw", "url", "data"];

/** @throws ServiceError `invalid_input` that names every field which is not as it must be */
export function checkParams(method: string, params: unknown): void {
  const schema = Object.hasOwn(SCHEMAS, method) ? SCHEMAS[method] : undefined;
  if (schema === undefined) return;
  requireValid(validators[schema] as Check, { params });
  if (schema === "PeerMessageRequest") checkParts((params as { message: { parts: object[] } }).message.parts);
}

function checkParts(parts: readonly object[]): void {
  for (const [index, part] of parts.entries()) {
    if (CONTENTS.filter((name) => name in part).length === 1) continue;
    throw invalid(`params.message.parts[${index}] must have exactly one of ${CONTENTS.join(", ")}`);
  }
}
