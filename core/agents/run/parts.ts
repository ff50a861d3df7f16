/**
 * The typed parts of a run, as `POST /agents/:id/stream` sends them. The other replies (text, object, UI stream) are derived
 * from them.
 */
import type {
  JSONObject,
  LanguageModelV3File,
  LanguageModelV3Source,
  SharedV3ProviderMetadata,
} from "@ai-sdk/provider";
import type {
  ToolCall as Call,
  FinishReason,
  PendingApproval,
  ToolResult as Result,
  Usage,
} from "../../../generated/types.ts";
import type { ToolProgress } from "../../lib/tool-progress.ts";
import { carriesMessage, type Thought } from "../prompt/model-input.ts";

export type { FinishReason, PendingApproval, Usage };

/** `providerExecuted` marks a tool that the provider ran itself. */
export type ToolCall = Carried<Omit<Call, "providerMetadata">> & { providerExecuted?: true };

export type ToolResult = Result & { providerExecuted?: true };

/** What the provider wants back with the next call: signatures, encrypted reasoning, ids of its own. */
type Carried<T> = T & { providerMetadata?: SharedV3ProviderMetadata };

/** The ids of the messages that a turn has stored: of its answer, and of the message of the user. */
export interface StoredIds {
  messageId?: string;
  userMessageId?: string;
}

interface ToolError {
  type: "tool-error";
  toolCallId: string;
  toolName: string;
  input: unknown;
  error: string;
  providerExecuted?: true;
}

/** `subAgentCallId` is the id of the call that delegated to it: the ids of its parts begin with that. */
type FromSubAgent<T> = T & { subAgentId?: string; subAgentName?: string; subAgentCallId?: string };

export type AgentPart = FromSubAgent<
  | { type: "start" }
  | { type: "start-step" }
  /** In its place, after a crash: what the step had said before does not count, the model is asked again. */
  | { type: "step-restart" }
  | Carried<{ type: "text-start"; id: string }>
  | { type: "text-delta"; id: string; delta: string }
  | Carried<{ type: "text-end"; id: string }>
  | Carried<{ type: "reasoning-start"; id: string }>
  | { type: "reasoning-delta"; id: string; delta: string }
  | Carried<{ type: "reasoning-end"; id: string }>
  | Carried<{ type: "tool-input-start"; id: string; toolName: string; providerExecuted?: true }>
  | { type: "tool-input-delta"; id: string; delta: string }
  | { type: "tool-input-end"; id: string }
  /** `error`: why a call of a client's tool does not run; a `tool-error` follows. */
  | (Carried<ToolCall> & { error?: string })
  /** What the tool says while it runs. */
  | ({ type: "tool-progress"; toolCallId: string; toolName: string } & ToolProgress)
  | Carried<ToolResult>
  | Carried<ToolError>
  | ({ type: "tool-approval-request" } & PendingApproval)
  | { type: "tool-output-denied"; toolCallId: string; toolName: string; reason?: string }
  | Carried<{ type: "source"; sourceType: "url"; id: string; url: string; title?: string }>
  | Carried<{
      type: "source";
      sourceType: "document";
      id: string;
      mediaType: string;
      title: string;
      filename?: string;
    }>
  | Carried<{ type: "file"; file: { base64: string; mediaType: string } }>
  | { type: "raw"; rawValue: unknown }
  | { type: "finish-step"; usage: Usage; model?: string; finishReason: FinishReason }
  | ({ type: "finish"; finishReason: FinishReason; totalUsage: Usage; model?: string; output?: unknown } & StoredIds)
  | { type: "abort" }
  | { type: "error"; error: string }
>;

export type Finish = Extract<AgentPart, { type: "finish" }>;

/**
 * Receives the parts of a run as they come, synchronously and in order. A promise means that the reader is behind: the loop
 * awaits it before it reads on from the model, so that a slow reader slows the model down (back-pressure).
 */
export interface PartSink {
  /** Called once, before the first part, when the model has accepted the call: response headers may be sent. */
  accepted?(): void;
  part(part: AgentPart): Promise<void> | undefined;
  /** True once the reader has left: the run is aborted then. */
  readonly closed: boolean;
  /** For a kept run, which goes on without its reader: `listener` is called once, when the reader leaves. */
  onLeave?(listener: () => void): void;
}

/** Discards all parts: only the result of the run is wanted. */
export const NULL_SINK: PartSink = Object.freeze({ part: () => undefined, closed: false });

export type Delta = Extract<AgentPart, { delta: string }>;

/** Without fields of the provider that deltas may carry. */
export function plainDelta({ type, id, delta, subAgentId, subAgentName, subAgentCallId }: Delta): Delta {
  return subAgentId === undefined ? { type, id, delta } : { type, id, delta, subAgentId, subAgentName, subAgentCallId };
}

// Parts of a provider as parts of a run: with the fields that are known, and what the provider wants back.

type Source = Extract<AgentPart, { type: "source" }>;

interface Signed {
  readonly providerMetadata?: SharedV3ProviderMetadata | undefined;
}

export const metadataOf = ({ providerMetadata }: Signed) =>
  providerMetadata === undefined ? undefined : { providerMetadata };

/** Most parts are not signed: then it is the same object. */
export const signed = <T extends object>(part: T, providerMetadata: Signed["providerMetadata"]): T =>
  providerMetadata === undefined ? part : { ...part, providerMetadata };

/**
 * A call with the thoughts that led to it, where their provider wants them back: clients of whole replies are sent no parts, and send
 * back the calls. Calls of chat completions have them already.
 */
export function withThoughts(call: ToolCall, thoughts: readonly Thought[]): ToolCall {
  const signed = thoughts.filter(({ providerMetadata }) => providerMetadata !== undefined);
  if (signed.length === 0 || Object.values(call.providerMetadata ?? {}).some(carriesMessage)) return call;
  const penstock = { thoughts: signed as (Thought & JSONObject)[] };
  return { ...call, providerMetadata: { ...call.providerMetadata, penstock } };
}

/** A source as UI messages and their chunks have it. */
export const uiSource = (part: Source) => ({
  type: `source-${part.sourceType}` as const,
  sourceId: part.id,
  ...sourceFields(part),
});

export const base64Of = ({ data }: LanguageModelV3File): string =>
  typeof data === "string" ? data : Buffer.from(data).toString("base64");

export const sourcePart = (part: LanguageModelV3Source): AgentPart => {
  const { type, sourceType, id } = part;
  return { type, sourceType, id, ...sourceFields(part) } as Source;
};

function sourceFields(part: Source | LanguageModelV3Source) {
  const metadata = metadataOf(part);
  if (part.sourceType === "url") {
    const { url, title } = part;
    return { url, ...(title !== undefined && { title }), ...metadata };
  }
  const { mediaType, title, filename } = part;
  return { mediaType, title, ...(filename !== undefined && { filename }), ...metadata };
}
