/** What requests carry, looked at before the SDK makes its own of it: it takes much for granted. */
import { validators } from "../../generated/validators.js";
import { requireValid, type Validator } from "../http/decode.ts";
import type { InputSchemaId } from "../http/route.ts";
import { invalid } from "../lib/errors.ts";

/** Versions of the protocol that are spoken here. */
export type Version = "0.3" | "1.0";

/** Methods, and what their params must be; null: whatever they are. */
export const METHODS: Readonly<Record<Version, Readonly<Record<string, InputSchemaId | null>>>> = {
  "1.0": {
    SendMessage: "PeerMessageRequest",
    SendStreamingMessage: "PeerMessageRequest",
    GetTask: "PeerTaskRequest",
    CancelTask: "PeerTaskRequest",
    SubscribeToTask: "PeerTaskRequest",
    ListTasks: "PeerTaskListRequest",
    GetExtendedAgentCard: null,
  },
  "0.3": {
    "message/send": "PeerOldMessageRequest",
    "message/stream": "PeerOldMessageRequest",
    "tasks/get": "PeerTaskRequest",
    "tasks/cancel": "PeerTaskRequest",
    "tasks/resubscribe": "PeerTaskRequest",
    "agent/getAuthenticatedExtendedCard": null,
  },
};

export const hasMethod = (version: Version, method: string): boolean => Object.hasOwn(METHODS[version], method);

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

/**
 * @param method one that this version has
 * @throws ServiceError `invalid_input` that names every field which is not as it must be
 */
export function checkParams(version: Version, method: string, params: unknown): void {
  const schema = METHODS[version][method] ?? null;
  if (schema === null) return;
  requireValid(validators[schema] as Validator, { params });
  if (schema === "PeerMessageRequest") checkParts((params as { message: { parts: object[] } }).message.parts);
}

function checkParts(parts: readonly object[]): void {
  for (const [index, part] of parts.entries()) {
    if (CONTENTS.filter((name) => name in part).length === 1) continue;
    throw invalid(`params.message.parts[${index}] must have exactly one of ${CONTENTS.join(", ")}`);
  }
}
