/** Reads the output of a run for OpenAI's clients: its text, its reasoning, its own tool calls, and the calls that the client runs; and hands it to a translation. */
import type { SharedV3ProviderMetadata } from "@ai-sdk/provider";
import type { AgentPart, FinishReason, PartSink, ToolCall, Usage } from "../agents/run/parts.ts";
import type { ProtocolRun } from "../agents/run-requests.ts";
import { EVENT_HEADERS } from "../http/event-writer.ts";
import type { TextStream } from "../http/route.ts";
import { unavailable } from "../lib/errors.ts";
import type { TextSink } from "../lib/event-sink.ts";
import { notAgain } from "./errors.ts";

/** The metadata that the provider expects back with a block or a call. */
type Metadata = SharedV3ProviderMetadata | undefined;
type Call = ToolCall & { readonly providerMetadata?: Metadata };

export type Said =
  /** `restart`: the output since the last step started is void, and is sent again. */
  | { readonly type: "step" | "restart" }
  | { readonly type: "text-start" | "reasoning-start" }
  | { readonly type: "text" | "reasoning"; readonly delta: string }
  | { readonly type: "text-end" | "reasoning-end"; readonly metadata: Metadata }
  /** A call of the agent itself: `own-result` is its end. */
  | { readonly type: "own-call"; readonly call: Call }
  | { readonly type: "own-result"; readonly id: string; readonly output: unknown; readonly error: string | null }
  /** A call for the client. */
  | { readonly type: "call"; readonly call: Call }
  | { readonly type: "end"; readonly finishReason: FinishReason; readonly usage: Usage };

/** What has to be known of a run to read its parts. */
export type ReadRun = Pick<ProtocolRun, "isJson" | "clientTools">;

const NOTHING: readonly Said[] = [];
const STEP: Said = { type: "step" };
const RESTART: Said = { type: "restart" };

/**
 * Reads the parts of one run. Blocks of text and reasoning come one after the other, each between its start and its end.
 *
 * A call of a client's tool is passed to the client when its step ends without a result for it: a call with an invalid input is answered
 * by the service.
 */
export class RunReader {
  readonly #run: ReadRun;
  /** Calls of the step that may be for the client. */
  readonly #open = new Map<string, Call>();
  #block: "text" | "reasoning" | null = null;
  /** The text of the step, if a JSON answer must be held back until it is known to be valid. */
  #held = "";

  constructor(run: ReadRun) {
    this.#run = run;
  }

  read(part: AgentPart): readonly Said[] {
    // A sub-agent's answer is the result of the call that started it.
    if (part.subAgentId !== undefined) return NOTHING;
    switch (part.type) {
      case "text-delta":
        if (!this.#run.isJson) return this.#add("text", part.delta);
        this.#held += part.delta;
        return NOTHING;
      case "reasoning-delta":
        return this.#add("reasoning", part.delta);
      case "text-end":
        return this.#block === "text" ? this.#endBlock(part.providerMetadata) : NOTHING;
      case "reasoning-end":
        return this.#endReasoning(part.providerMetadata);
      case "start-step":
        return [...this.#beginStep(), STEP];
      case "step-restart":
        this.#block = null;
        return [...this.#beginStep(), RESTART];
      case "tool-call":
        return this.#call(part);
      case "tool-result":
        return this.#result(part.toolCallId, part.output, null);
      case "tool-error":
        return this.#result(part.toolCallId, null, part.error);
      case "tool-output-denied":
        return this.#result(part.toolCallId, null, part.reason ?? "denied");
      case "finish-step":
        return this.#endStep();
      case "finish": {
        const { finishReason, totalUsage: usage, output } = part;
        const answer = this.#run.isJson && output !== undefined ? whole(JSON.stringify(output)) : NOTHING;
        return [...this.#endBlock(), ...answer, { type: "end", finishReason, usage }];
      }
      default:
        return NOTHING;
    }
  }

  #beginStep(): readonly Said[] {
    this.#held = "";
    this.#open.clear();
    return this.#endBlock();
  }

  #add(type: "text" | "reasoning", delta: string): readonly Said[] {
    if (delta === "") return NOTHING;
    if (this.#block === type) return [{ type, delta }];
    const before = this.#endBlock();
    this.#block = type;
    return [...before, { type: `${type}-start` }, { type, delta }];
  }

  #endBlock(metadata?: Metadata): readonly Said[] {
    if (this.#block === null) return NOTHING;
    const type = `${this.#block}-end` as const;
    this.#block = null;
    return [{ type, metadata }];
  }

  /** Ends the reasoning. A provider may hide it, and expect metadata back in its place. */
  #endReasoning(metadata: Metadata): readonly Said[] {
    if (this.#block === "reasoning") return this.#endBlock(metadata);
    if (metadata === undefined) return NOTHING;
    return [...this.#endBlock(), { type: "reasoning-start" }, { type: "reasoning-end", metadata }];
  }

  #call(call: Call): readonly Said[] {
    const ended = this.#endBlock();
    if (call.providerExecuted !== true && this.#run.clientTools.includes(call.toolName)) {
      this.#open.set(call.toolCallId, call);
      return ended;
    }
    return [...ended, { type: "own-call", call }];
  }

  #result(id: string, output: unknown, error: string | null): readonly Said[] {
    const call = this.#open.get(id);
    this.#open.delete(id);
    const called: readonly Said[] = call === undefined ? NOTHING : [{ type: "own-call", call }];
    return [...this.#endBlock(), ...called, { type: "own-result", id, output, error }];
  }

  #endStep(): readonly Said[] {
    const calls = [...this.#open.values()];
    this.#open.clear();
    // JSON text in a step that ends with calls for the client is not the answer yet.
    const held = calls.length > 0 && this.#held !== "" ? whole(this.#held) : NOTHING;
    return [...this.#endBlock(), ...held, ...calls.map((call): Said => ({ type: "call", call }))];
  }
}

const whole = (delta: string): readonly Said[] => [
  { type: "text-start" },
  { type: "text", delta },
  { type: "text-end", metadata: undefined },
];

// Hands what a run says to a translation, for a reply that is sent whole or as a stream.

/** Writes the stream of one run. */
export interface StreamTranslation {
  /** The text that begins the stream. */
  begin(): string;
  /** The text for a piece of output; empty when there is none. */
  write(said: Said): string;
  /** The text after a run that has succeeded. */
  end(): string | Promise<string>;
  /** The text after a run that has failed. @param error undefined when the run was ended from outside */
  fail(message: string, error: unknown): string;
}

/** An SSE comment: clients skip it. */
export const HEARTBEAT = ": \n\n";

/**
 * @param storing of a run whose end is to be stored: the runs that a request hears to the end although its client leaves. One request for each
 *   run is enough.
 */
export function streamTranslated(run: ProtocolRun, translation: StreamTranslation, storing?: Set<string>): TextStream {
  let failure: unknown;
  return {
    status: 200,
    headers: EVENT_HEADERS,
    opensLate: true,
    heartbeat: HEARTBEAT,
    failure: (message) => translation.fail(message, failure),
    async stream(sink) {
      const goesOn = storing?.has(run.messageId) === false;
      if (goesOn) storing.add(run.messageId);
      try {
        await run.start(new StreamSink(sink, run, translation, goesOn));
        await sink.send(await translation.end());
      } catch (error) {
        failure = error;
        throw error;
      } finally {
        if (goesOn) storing.delete(run.messageId);
      }
    },
  };
}

class StreamSink implements PartSink {
  readonly #sink: TextSink;
  readonly #reader: RunReader;
  readonly #translation: StreamTranslation;

  readonly #goesOn: boolean;

  constructor(sink: TextSink, run: ProtocolRun, translation: StreamTranslation, goesOn: boolean) {
    this.#sink = sink;
    this.#reader = new RunReader(run);
    this.#translation = translation;
    this.#goesOn = goesOn;
  }

  get closed(): boolean {
    return this.#sink.closed && !this.#goesOn;
  }

  onLeave(listener: () => void): void {
    this.#sink.onLeave(listener);
  }

  accepted(): void {
    void this.#sink.send(this.#translation.begin());
  }

  part(part: AgentPart): Promise<void> | undefined {
    let text = "";
    for (const said of this.#reader.read(part)) text += this.#translation.write(said);
    return text === "" || this.#sink.closed ? undefined : this.#sink.send(text);
  }
}

/** Runs to the end, and calls `hear` with all output. @throws ServiceError `unavailable` when it was aborted */
export async function hearRun(run: ProtocolRun, hear: (said: Said) => void): Promise<void> {
  const reader = new RunReader(run);
  let aborted = false;
  let mayHaveActed = false;
  try {
    await run.start({
      closed: false,
      accepted() {
        mayHaveActed = true;
      },
      part(part) {
        if (part.type === "abort") aborted = true;
        for (const said of reader.read(part)) hear(said);
        return undefined;
      },
    });
  } catch (error) {
    throw mayHaveActed ? notAgain(error) : error;
  }
  if (aborted) throw notAgain(unavailable("the run was stopped"));
}
