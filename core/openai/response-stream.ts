/** The events of a response, in the order and with the numbers that clients check. */
import { errorFields } from "./errors.ts";
import { failedEnd, type ResponseResource } from "./resource.ts";
import type { ResponseEvent, ResponseOutput } from "./response-output.ts";
import type { Said } from "./run-parts.ts";
import type { StreamTranslation } from "./run-sink.ts";

const DONE = "data: [DONE]\n\n";

export class ResponseStream implements StreamTranslation {
  readonly #resource: ResponseResource;
  readonly #output: ResponseOutput;
  readonly #finish: () => Promise<ResponseResource>;
  #sequence = 0;

  /**
   * @param resource as the response begins
   * @param finish gives the whole resource once the run has ended
   */
  constructor(resource: ResponseResource, output: ResponseOutput, finish: () => Promise<ResponseResource>) {
    this.#resource = resource;
    this.#output = output;
    this.#finish = finish;
  }

  begin(): string {
    const response = this.#resource;
    return this.#texts([
      { type: "response.created", response },
      { type: "response.in_progress", response },
    ]);
  }

  write(said: Said): string {
    return this.#texts(this.#output.of(said));
  }

  async end(): Promise<string> {
    const response = await this.#finish();
    return this.#texts([{ type: `response.${response.status}`, response }]) + DONE;
  }

  fail(message: string, error: unknown): string {
    // Clients want to hear of the response before they hear of its end.
    const begun = this.#sequence === 0 ? this.begin() : "";
    const fields = errorFields(error, message);
    const end = failedEnd(fields.code, message);
    const { usage } = this.#output;
    const response = { ...this.#resource, ...end, output: this.#output.cutOff(), usage, store: false };
    const events = [
      { type: "error", error: fields },
      { type: "response.failed", response },
    ];
    return begun + this.#texts(events) + DONE;
  }

  #texts(events: readonly ResponseEvent[]): string {
    let texts = "";
    for (const { type, ...rest } of events)
      texts += `event: ${type}\ndata: ${JSON.stringify({ type, sequence_number: this.#sequence++, ...rest })}\n\n`;
    return texts;
  }
}
