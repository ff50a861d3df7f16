/** The bench's minimal client (`bench/upstream/wire.ts`) as a provider: what remains is the cost of the rest of Penstock. */
import { Pool } from "undici";
import {
  defineProvider,
  type LanguageModelV3CallOptions,
  type LanguageModelV3StreamPart,
  type PartBatch,
  type PartSource,
} from "#plugin";
import { type Answer, ask, type Reader, type Usage } from "../../wire.ts";

interface Config {
  origin: string;
  path: string;
}

class Source implements PartSource, Reader {
  call: Answer | undefined;
  readonly ready: () => void;
  readonly refused: (error: Error) => void;
  #parts: LanguageModelV3StreamPart[] = [{ type: "stream-start", warnings: [] }];
  #waiting: { resolve(batch: PartBatch | null): void; reject(error: Error): void } | null = null;
  #begun = false;
  #over = false;
  #error: Error | null = null;
  #reason = "";
  #usage: Usage = { prompt_tokens: 0, completion_tokens: 0 };

  constructor(ready: () => void, refused: (error: Error) => void) {
    this.ready = ready;
    this.refused = refused;
  }

  next(): PartBatch | null | Promise<PartBatch | null> {
    if (this.#parts.length > 0) return this.#take();
    if (this.#error !== null) throw this.#error;
    if (this.#over) return null;
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
  }

  cancel(): void {
    this.#over = true;
    this.#parts = [];
    this.call?.cancel();
  }

  accepted(): void {
    this.ready();
  }

  text(delta: string): void {
    if (!this.#begun) {
      this.#begun = true;
      this.#parts.push({ type: "text-start", id: "0" });
    }
    this.#parts.push({ type: "text-delta", id: "0", delta });
  }

  finish(reason: string): void {
    this.#reason = reason;
  }

  usage(usage: Usage): void {
    this.#usage = usage;
  }

  pause(): void {
    if (this.#waiting === null || this.#parts.length === 0) return;
    const { resolve } = this.#waiting;
    this.#waiting = null;
    resolve(this.#take());
  }

  end(): void {
    const { prompt_tokens: input, completion_tokens: output } = this.#usage;
    if (this.#begun) this.#parts.push({ type: "text-end", id: "0" });
    this.#parts.push({
      type: "finish",
      finishReason: { unified: this.#reason as "stop", raw: this.#reason },
      usage: {
        inputTokens: { total: input, noCache: input, cacheRead: undefined, cacheWrite: undefined },
        outputTokens: { total: output, text: output, reasoning: undefined },
      },
    });
    this.#over = true;
    this.pause();
  }

  fail(error: Error): void {
    this.#error = error;
    this.refused(error);
    this.#waiting?.reject(error);
    this.#waiting = null;
  }

  #take(): PartBatch {
    const parts = this.#parts;
    this.#parts = [];
    return parts;
  }
}

function messagesOf({ prompt }: LanguageModelV3CallOptions) {
  return prompt.map(({ role, content }) => ({
    role,
    content:
      typeof content === "string" ? content : content.map((part) => (part.type === "text" ? part.text : "")).join(""),
  }));
}

export default defineProvider({
  config: {
    type: "object",
    properties: { origin: { type: "string" }, path: { type: "string" } },
    required: ["origin", "path"],
    additionalProperties: false,
  },
  create({ origin, path }: Config, host) {
    const pool = new Pool(origin, { headersTimeout: 0, bodyTimeout: 0 });
    host.onClose(() => pool.destroy());
    return {
      languageModel: (model) => ({
        specificationVersion: "v3",
        provider: "bare-wire",
        modelId: model,
        supportedUrls: {},
        doGenerate: () => Promise.reject(new Error("this model only streams")),
        doStream: (options) =>
          new Promise((resolve, reject) => {
            const source = new Source(
              () =>
                resolve({
                  batches: source,
                  get stream(): never {
                    throw new Error("this model answers in batches");
                  },
                } as never),
              reject,
            );
            const body = {
              model,
              messages: messagesOf(options),
              stream: true,
              stream_options: { include_usage: true },
            };
            source.call = ask(pool, path, body, source);
          }),
      }),
    };
  },
});
