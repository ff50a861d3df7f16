/** Providers that speak OpenAI's chat completions, each in its own way: what they refuse is refused here, in their words. */
import { isDeepStrictEqual } from "node:util";
import { openAIChat } from "./strict-openai-chat.ts";
import { type Answer, type Dialect, event, type Json, Refusal } from "./strict-upstream.ts";

/** Comments before the answer, as these send while their model thinks. */
const KEEP_ALIVE = ": OPENROUTER PROCESSING\n\n";
const DONE = "data: [DONE]\n\n";

type Chunk = Json;

/** The events of an answer without usage, with a thought before the text, each changed as the provider has it. */
function chunksOf(chat: Dialect, answer: Answer, body: Json, thought: (text: string) => object): Chunk[] {
  const texts = chat.events(answer, { ...body, stream_options: undefined });
  const chunks: Chunk[] = texts.filter((text) => text !== DONE).map((text) => JSON.parse(text.slice("data: ".length)));
  if (answer.thought !== undefined) {
    const choices = [{ index: 0, delta: { role: "assistant", ...thought(answer.thought) }, finish_reason: null }];
    chunks.splice(1, 0, { ...chunks[0], choices });
  }
  return chunks;
}

const finishOf = (chunk: Chunk): unknown => chunk.choices[0]?.finish_reason ?? null;

function refuse(message: string, status = 400): never {
  throw new Refusal(status, message, { error: { message, type: "invalid_request_error" } });
}

/** Knows no thoughts in the prompt, no JSON beside tools, and counts in `x_groq`. */
export function groq(): Dialect {
  const chat = openAIChat();
  return {
    base: "/v1",
    check(body, path) {
      body.messages.forEach(({ role, ...message }: Json, index: number) => {
        for (const key of ["reasoning_content", "thinking"])
          if (key in message)
            refuse(
              `'messages.${index}' : for 'role:${role}' the following must be satisfied[('messages.${index}' : property '${key}' is unsupported)]`,
            );
      });
      if (body.response_format?.type === "json_schema")
        refuse("This model does not support response format `json_schema`. See supported models at https://groq.test");
      if (body.response_format !== undefined && body.tools !== undefined)
        refuse("json mode cannot be combined with tool/function calling");
      chat.check(body, path);
    },
    events(answer, body) {
      const chunks = chunksOf(chat, answer, body, (reasoning) => ({ reasoning }));
      const usage = { queue_time: 0.01, prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
      return [
        ...chunks.map((chunk, index) => {
          if (index === 0) return event({ ...chunk, x_groq: { id: "req_1" } });
          return event(finishOf(chunk) === null ? chunk : { ...chunk, x_groq: { id: "req_1", usage } });
        }),
        DONE,
      ];
    },
  };
}

const MISTRAL_BODY =
  /^(?:model|messages|stream|max_tokens|temperature|top_p|tools|tool_choice|response_format|random_seed|stop|n|frequency_penalty|presence_penalty|parallel_tool_calls|prompt_mode)$/;
const MISTRAL_MESSAGE = /^(?:role|content|tool_calls|tool_call_id|name|prefix)$/;

/** Knows no field that is not its own; its ids of calls have nine characters, and its thoughts stand in lists. */
export function mistral(): Dialect {
  const chat = openAIChat();
  let calls = 0;
  return {
    base: "/v1",
    check(body, path) {
      const extra = Object.keys(body).flatMap((key) => (MISTRAL_BODY.test(key) ? [] : [["body", key]]));
      body.messages.forEach((message: Json, index: number) => {
        for (const key of Object.keys(message))
          if (!MISTRAL_MESSAGE.test(key)) extra.push(["body", "messages", String(index), message.role, key]);
      });
      if (extra.length > 0) {
        const detail = extra.map((loc) => ({ type: "extra_forbidden", loc, msg: "Extra inputs are not permitted" }));
        const message = { detail };
        throw new Refusal(422, JSON.stringify(message), { object: "error", message, type: "invalid_request_error" });
      }
      for (const { tool_calls = [] } of body.messages)
        for (const { id } of tool_calls) {
          if (/^[a-zA-Z0-9]{9}$/.test(id)) continue;
          const message = `Tool call id was ${id} but must be a-z, A-Z, 0-9, with a length of 9.`;
          throw new Refusal(400, message, {
            object: "error",
            message,
            type: "invalid_request_message_order",
            code: "3280",
          });
        }
      chat.check(body, path);
    },
    events({ calls: wanted, ...answer }, body) {
      const named = wanted?.map((call) => ({ ...call, id: `tool${String(++calls).padStart(5, "0")}` }));
      const whole = { ...answer, ...(named && { calls: named }) };
      const thought = (text: string) => ({ content: [{ type: "thinking", thinking: [{ type: "text", text }] }] });
      const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
      const chunks = chunksOf(chat, whole, body, thought);
      return [...chunks.map((chunk) => event(finishOf(chunk) === null ? chunk : { ...chunk, usage })), DONE];
    },
  };
}

/** Wants its thoughts back while tools are called, and takes `json_object` but no schema. */
export function deepSeek(): Dialect {
  const chat = openAIChat();
  const thoughts = new Map<string, string>();
  return {
    base: "",
    check(body, path) {
      if (body.response_format?.type === "json_schema") refuse("This response_format type is unavailable now");
      body.messages.forEach(({ tool_calls = [], reasoning_content }: Json, index: number) => {
        const thought = thoughts.get(tool_calls[0]?.id);
        if (thought !== undefined && reasoning_content !== thought)
          refuse(`Missing \`reasoning_content\` field in the assistant message at message index ${index}`);
      });
      chat.check(body, `/v1${path}`);
    },
    events(answer, body) {
      const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15, prompt_cache_hit_tokens: 4 };
      const chunks = chunksOf(chat, answer, body, (reasoning_content) => ({
        content: null,
        reasoning_content,
      }));
      const called = chunks.map((chunk) => chunk.choices[0]?.delta.tool_calls?.[0].id).find(Boolean);
      if (called !== undefined && answer.thought !== undefined) thoughts.set(called, answer.thought);
      return [
        ": keep-alive\n\n",
        ...chunks.map((chunk) => event(finishOf(chunk) === null ? chunk : { ...chunk, usage })),
        DONE,
      ];
    },
  };
}

/**
 * Comments while the model thinks, thoughts in two fields, and usage in an event whose choice is empty. The details of thoughts come in
 * pieces, and calls without those that led to them are refused.
 */
export function openRouter(): Dialect {
  const chat = openAIChat();
  const known = new Map<string, { thought: string; details: object[] }>();
  let count = 0;
  return {
    base: "/api/v1",
    check(body, path) {
      body.messages.forEach(
        ({ tool_calls = [], reasoning, reasoning_content, reasoning_details }: Json, index: number) => {
          const wanted = known.get(tool_calls[0]?.id);
          if (wanted === undefined) return;
          if (!isDeepStrictEqual(reasoning_details, wanted.details))
            refuse(
              `messages.${index}: reasoning_details must be those of the answer, got ${JSON.stringify(reasoning_details)}`,
            );
          // Most clients know but one of the two names. The details have the thought too.
          if ((reasoning ?? reasoning_content ?? wanted.thought) !== wanted.thought)
            refuse(`messages.${index}: the reasoning must be that of the answer`);
        },
      );
      chat.check(body, path.replace("/api", ""));
    },
    events(answer, body) {
      const text = { type: "reasoning.text", format: "anthropic-claude-v1", index: 0 };
      const signature = `sig${++count}`;
      const locked = { type: "reasoning.encrypted", data: `ENC${count}`, id: `rs_${count}`, index: 1 };
      const chunks = chunksOf(chat, answer, body, (reasoning) => ({
        content: "",
        reasoning,
        reasoning_details: [{ ...text, text: reasoning.slice(0, 2) }],
      }));
      if (answer.thought !== undefined) {
        const more = (...reasoning_details: object[]) => ({
          ...chunks[0],
          choices: [{ index: 0, delta: { role: "assistant", content: "", reasoning_details }, finish_reason: null }],
        });
        chunks.splice(2, 0, more({ ...text, text: answer.thought.slice(2) }), more({ ...text, signature }, locked));
        const called = chunks.map((chunk) => chunk.choices[0]?.delta.tool_calls?.[0].id).find(Boolean);
        const details = [{ ...text, text: answer.thought, signature }, locked];
        if (called !== undefined) known.set(called, { thought: answer.thought, details });
      }
      const empty = { index: 0, delta: { role: "assistant", content: "" }, finish_reason: null };
      const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15, cost: 0.0001 };
      return [
        ...chunks.flatMap((chunk) => [KEEP_ALIVE, event({ ...chunk, provider: "Somebody" })]),
        event({ ...chunks[0], choices: [empty], usage }),
        DONE,
      ];
    },
  };
}

/** Azure: a key in a header of its own, a version in the query, and a first event without choices. */
export function azure(): Dialect {
  const chat = openAIChat();
  const base = "/openai/deployments/chat";
  return {
    base,
    check(body, path) {
      if (!path.endsWith("?api-version=2024-10-21")) refuse("Resource not found", 404);
      chat.check(body, path.replace(base, "/v1").replace(/\?.*/, ""));
    },
    events: (answer, body) => [
      event({ id: "", object: "", created: 0, model: "", choices: [], prompt_filter_results: [{ prompt_index: 0 }] }),
      ...chat.events(answer, body),
    ],
  };
}
