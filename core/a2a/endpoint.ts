/** `POST /a2a/:id`, with the SDK: loaded with the first request. */

import { LegacyJsonRpcTransportHandler } from "@a2a-js/sdk/compat/v0_3/server";
import { A2A_ERROR_CODE, PushNotificationNotSupportedError, VersionNotSupportedError } from "@a2a-js/sdk/errors";
import { type A2ARequestHandler, JsonRpcTransportHandler, ServerCallContext } from "@a2a-js/sdk/server";
import type { Agent } from "../agents/agent.ts";
import type { RunCall } from "../agents/run/caller.ts";
import { EVENT_HEADERS } from "../http/event-writer.ts";
import type { Context, RawReply } from "../http/route.ts";
import { principalOf } from "../identity/principal.ts";
import { messageOf } from "../lib/errors.ts";
import type { TextSink } from "../lib/event-sink.ts";
import { a2aError } from "./errors.ts";
import { checkParams, checkRequest, hasMethod, jsonNames, type Version } from "./params.ts";
import { PushConfigs } from "./push-configs.ts";
import type { PushSender } from "./push-sender.ts";
import { Requests } from "./requests.ts";
import type { Tasks } from "./tasks.ts";

/* JSON-RPC input and output: versions of the protocol, replies and streams. */

const JSON_HEADERS = ["content-type", "application/json; charset=utf-8", "cache-control", "no-store"];

type Id = string | number | null;

/** What the reply depends on. */
interface RpcCall {
  readonly id: Id;
  readonly version: Version;
  readonly call: Pick<RunCall, "logger" | "requestId">;
}

/**
 * @param headers without `A2A-Version` the version is 0.3 (A2A 1.0, "Protocol Versioning")
 * @param hasPush whether the manifest allows push notifications
 */
async function answerRpc(
  body: unknown,
  headers: Readonly<Record<string, string>>,
  requests: A2ARequestHandler,
  hasPush: boolean,
  call: RpcCall["call"],
): Promise<RawReply> {
  try {
    checkRequest(body);
  } catch (error) {
    const { id } = Object(body);
    const isId = typeof id === "string" || typeof id === "number";
    return reply(rpcError(isId ? id : null, A2A_ERROR_CODE.INVALID_REQUEST, messageOf(error)));
  }
  const { id = null, method, params } = body;
  const header = headers["a2a-version"];
  const version = chooseVersion(header, method);
  const rpc: RpcCall = { id, version: version ?? "1.0", call };
  const refuse = STREAMED.has(method) && headers.accept?.includes("event-stream") ? replyEvent : reply;
  try {
    if (version === null) throw unsupported(header!);
    // Refused whatever the params are.
    if (!hasPush && /PushNotificationConfig/i.test(method)) throw new PushNotificationNotSupportedError();
    // The SDK reports an unknown method only when the params are an object.
    if (!hasMethod(version, method))
      return reply(rpcError(id, A2A_ERROR_CODE.METHOD_NOT_FOUND, unknown(method, version)));
    const named = version === "1.0" ? jsonNames(params) : params;
    checkParams(version, method, named);
    const handler =
      version === "0.3" ? new LegacyJsonRpcTransportHandler(requests) : new JsonRpcTransportHandler(requests);
    const context = new ServerCallContext({ requestedVersion: version });
    const answer = await handler.handle({ ...body, params: named }, context);
    if (!(Symbol.asyncIterator in answer)) return reply(answer);
    // Waits for the first event: an error in its place can still be a plain reply.
    const first = await answer.next();
    return first.done ? reply(failure(rpc, new Error("a stream without an event"))) : stream(rpc, first.value, answer);
  } catch (error) {
    return refuse(failure(rpc, error));
  }
}

/** Clients of 0.3 take a reply to these that is no stream for broken, and do not read its error. */
const STREAMED = new Set(["message/stream", "tasks/resubscribe"]);

const unknown = (method: string, version: Version) =>
  `A2A ${version} has no method ${JSON.stringify(method.slice(0, 64))}`;

const unsupported = (version: string) =>
  new VersionNotSupportedError(`A2A ${version.slice(0, 20)} is not supported: 1.0 and 0.3 are`);

function stream(rpc: RpcCall, first: object, events: AsyncGenerator<object, void, undefined>): RawReply {
  return {
    status: 200,
    headers: EVENT_HEADERS,
    heartbeat: ": \n\n",
    failure: (message) => eventText(rpcError(rpc.id, A2A_ERROR_CODE.INTERNAL_ERROR, message)),
    stream: (sink) => tell(sink, rpc, first, events),
  };
}

async function tell(
  sink: TextSink,
  rpc: RpcCall,
  first: object,
  events: AsyncGenerator<object, void, undefined>,
): Promise<void> {
  try {
    let next: IteratorResult<object, void> = { value: first };
    while (!next.done && !sink.closed) {
      const behind = sink.send(eventText(next.value));
      if (behind !== undefined) await behind;
      next = await events.next();
    }
  } catch (error) {
    sink.send(eventText(failure(rpc, error)));
  } finally {
    await events.return();
  }
}

/** The version of a request; null when it is not supported. Methods that only 1.0 has need no header. */
function chooseVersion(header: string | undefined, method: string): Version | null {
  const given = header?.trim() ?? "";
  if (given === "") return /^[A-Z]/.test(method) ? "1.0" : "0.3";
  if (/^1\.0(\.\d+)?$/.test(given)) return "1.0";
  return /^0\.3(\.\d+)?$/.test(given) ? "0.3" : null;
}

function failure({ id, version, call }: RpcCall, thrown: unknown): object {
  const error = a2aError(thrown, call);
  const mapped =
    version === "0.3"
      ? LegacyJsonRpcTransportHandler.mapToLegacyJSONRPCError(error)
      : JsonRpcTransportHandler.mapToJSONRPCError(error);
  return { jsonrpc: "2.0", id, error: mapped };
}

const rpcError = (id: Id, code: number, message: string) => ({
  jsonrpc: "2.0",
  id,
  error: { code, message },
});

/** In JSON-RPC an error is a reply like any other, with status 200. */
const reply = (answer: object): RawReply => ({ status: 200, headers: JSON_HEADERS, body: JSON.stringify(answer) });

const replyEvent = (answer: object): RawReply => ({ status: 200, headers: EVENT_HEADERS, body: eventText(answer) });

const eventText = (answer: object): string => `data: ${JSON.stringify(answer)}\n\n`;

/** A request to an agent. */
export interface AgentRequest {
  readonly agent: Agent;
  /** The card of the agent, as JSON. A function, because few methods need it. */
  readonly card: () => string;
  readonly body: unknown;
  /** Arrival of the request on the clock of `performance.now()`: the first one also waits until the SDK is loaded. */
  readonly began: number;
}

interface Served {
  readonly tasks: Tasks;
  readonly pushes: PushSender;
  readonly isolated: boolean;
  /** Milliseconds that a reply may wait for the end of its task. */
  readonly replyTimeout: number;
}

export function answerRequest(
  { agent, card, body, began }: AgentRequest,
  call: Context<unknown>,
  { tasks, pushes, isolated, replyTimeout }: Served,
): Promise<RawReply> {
  const principal = principalOf(call, isolated);
  const configs = new PushConfigs({ agent: agent.id, card, tasks, pushes, principal });
  const requests = new Requests({ agent, card, tasks, configs, principal, call, until: began + replyTimeout });
  return answerRpc(body, call.headers, requests, pushes.isEnabled, call);
}
