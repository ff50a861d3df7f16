/** The wire format of OpenAI's chat completions: from steps of a script to server-sent events, or to one JSON body. */

export interface StreamedCall {
  index: number;
  /** Only with the first delta of a call. */
  id?: string;
  name?: string;
  arguments?: string;
}

/** What an upstream does next. */
export type Step =
  | { text: string }
  | { reasoning: string }
  | { call: StreamedCall }
  | { finish: string }
  | { usage: { prompt?: number; completion?: number; cached?: number; reasoning?: number } }
  | { error: unknown }
  | { done: true }
  | { raw: string }
  | { wait: number }
  | { stall: true }
  | { cut: true };

interface RequestBody {
  model?: string;
  stream_options?: { include_usage?: boolean };
}

const head = (body: RequestBody, object: string) => ({
  id: "chatcmpl-1",
  object,
  created: 1,
  model: body.model ?? "?",
});

/** The events of one step, as text for the socket. */
export function eventsOf(step: Step, body: RequestBody): string[] {
  if ("raw" in step) return [step.raw];
  if ("done" in step) return ["data: [DONE]\n\n"];
  const event = chunkOf(step, body);
  return event === null ? [] : [`data: ${JSON.stringify(event)}\n\n`];
}

function chunkOf(step: Step, body: RequestBody): unknown {
  const chunk = (delta: unknown, finish: string | null = null) => ({
    ...head(body, "chat.completion.chunk"),
    choices: [{ index: 0, delta, finish_reason: finish }],
  });
  if ("error" in step) return { error: step.error };
  if ("text" in step) return chunk({ role: "assistant", content: step.text });
  if ("reasoning" in step) return chunk({ role: "assistant", reasoning_content: step.reasoning });
  if ("finish" in step) return chunk({}, step.finish);
  if ("call" in step) return chunk({ tool_calls: [wireCall(step.call)] });
  // As OpenAI does: usage only for who asks for it, in a chunk of its own without choices.
  if ("usage" in step && body.stream_options?.include_usage === true) {
    return { ...head(body, "chat.completion.chunk"), choices: [], usage: wireUsage(step.usage) };
  }
  return null;
}

function wireCall({ index, id, name, arguments: pieces }: StreamedCall) {
  return {
    index,
    ...(id === undefined ? {} : { id, type: "function" }),
    function: { ...(name === undefined ? {} : { name }), ...(pieces === undefined ? {} : { arguments: pieces }) },
  };
}

function wireUsage(usage: { prompt?: number; completion?: number; cached?: number; reasoning?: number }) {
  const { prompt = 10, completion = 5, cached, reasoning } = usage;
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    ...(cached === undefined ? {} : { prompt_tokens_details: { cached_tokens: cached } }),
    ...(reasoning === undefined ? {} : { completion_tokens_details: { reasoning_tokens: reasoning } }),
  };
}

/** The same script as the body of a call that does not stream. */
export function completionOf(steps: readonly Step[], body: RequestBody): unknown {
  let content = "";
  let reasoning = "";
  let finish = "stop";
  let usage = {};
  const calls: { id?: string; type: "function"; function: { name?: string; arguments: string } }[] = [];
  for (const step of steps) {
    if ("text" in step) content += step.text;
    else if ("reasoning" in step) reasoning += step.reasoning;
    else if ("finish" in step) finish = step.finish;
    else if ("usage" in step) usage = step.usage;
    else if ("call" in step) {
      const { index, id, name, arguments: pieces = "" } = step.call;
      const call = calls[index];
      if (call === undefined) calls[index] = { id, type: "function", function: { name, arguments: pieces } };
      else call.function.arguments += pieces;
    }
  }
  const message = {
    role: "assistant",
    content: content === "" ? null : content,
    ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  };
  return {
    ...head(body, "chat.completion"),
    choices: [{ index: 0, message, finish_reason: finish }],
    usage: wireUsage(usage),
  };
}
