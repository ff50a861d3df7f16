/** Validates requests before the SDK reads them, because it assumes that they are well formed. */
import { validators } from "../../generated/validators.js";
import { requireValid, type Validator } from "../http/decode.ts";
import type { InputSchemaId } from "../http/route.ts";
import { invalid } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";

/** Versions of the protocol that are supported. */
export type Version = "0.3" | "1.0";

/** Methods and the schemas of their params; null when any params are accepted. */
export const METHODS: Readonly<Record<Version, Readonly<Record<string, InputSchemaId | null>>>> = {
  "1.0": {
    SendMessage: "PeerMessageRequest",
    SendStreamingMessage: "PeerMessageRequest",
    GetTask: "PeerTaskRequest",
    CancelTask: "PeerTaskRequest",
    SubscribeToTask: "PeerTaskRequest",
    ListTasks: "PeerTaskListRequest",
    CreateTaskPushNotificationConfig: "PeerPushRequest",
    GetTaskPushNotificationConfig: "PeerPushConfigRequest",
    ListTaskPushNotificationConfigs: "PeerPushListRequest",
    DeleteTaskPushNotificationConfig: "PeerPushConfigRequest",
    GetExtendedAgentCard: null,
  },
  "0.3": {
    "message/send": "PeerOldMessageRequest",
    "message/stream": "PeerOldMessageRequest",
    "tasks/get": "PeerTaskRequest",
    "tasks/cancel": "PeerTaskRequest",
    "tasks/resubscribe": "PeerTaskRequest",
    "tasks/pushNotificationConfig/set": "PeerOldPushRequest",
    "tasks/pushNotificationConfig/get": "PeerOldPushConfigRequest",
    "tasks/pushNotificationConfig/list": "PeerTaskRequest",
    "tasks/pushNotificationConfig/delete": "PeerOldPushConfigRequest",
    "agent/getAuthenticatedExtendedCard": null,
  },
};

/** What clients fill as they like. */
const FREE = new Set(["metadata", "data"]);

/** Params of 1.0 with the names of JSON, for those of the protocol buffers, which clients may send as well: `taskId` for `task_id`. */
export function jsonNames(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(jsonNames);
  if (!isObject(value)) return value;
  const fields = Object.entries(value).map(([name, each]) => [
    name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
    FREE.has(name) ? each : jsonNames(each),
  ]);
  return Object.fromEntries(fields);
}

export const hasMethod = (version: Version, method: string): boolean => Object.hasOwn(METHODS[version], method);

/** A JSON-RPC request. A2A has no batches. */
interface RpcRequest {
  readonly id?: string | number | null;
  readonly method: string;
  readonly params?: unknown;
}

/** @throws ServiceError `invalid_input` for a body that is not a JSON-RPC request */
export function checkRequest(body: unknown): asserts body is RpcRequest {
  requireValid(validators.PeerRequest, body);
}

/** Content fields, of which a part of 1.0 has exactly one. */
const CONTENT_FIELDS = ["text", "raw", "url", "data"];

/**
 * @param method a method of this version
 * @throws ServiceError `invalid_input` that names every invalid field
 */
export function checkParams(version: Version, method: string, params: unknown): void {
  const schema = METHODS[version][method] ?? null;
  if (schema === null) return;
  requireValid(validators[schema] as Validator, { params });
  if (schema === "PeerMessageRequest") checkParts((params as { message: { parts: object[] } }).message.parts);
}

function checkParts(parts: readonly object[]): void {
  for (const [index, part] of parts.entries()) {
    if (CONTENT_FIELDS.filter((name) => name in part).length === 1) continue;
    throw invalid(`params.message.parts[${index}] must have exactly one of ${CONTENT_FIELDS.join(", ")}`);
  }
}
