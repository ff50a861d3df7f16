/** The events of a response, in the order and with the numbers that clients check. */
import { errorFields } from "./errors.ts";
import { failedEnd, type ResponseResource } from "./resource.ts";
import type { ResponseEvent, ResponseOutput } from "./response-output.ts";
import type { Said } from "./run-parts.ts";

/** As it is sent. */
export interface NumberedEvent {
  readonly type: string;
  readonly number: number;
  readonly json: string;
}

export class ResponseEvents {
  readonly #resource: ResponseResource;
  readonly #output: ResponseOutput;
  #sequence = 0;

  /** @param resource as the response begins */
  constructor(resource: ResponseResource, output: ResponseOutput) {
    this.#resource = resource;
    this.#output = output;
  }

  begin(): readonly NumberedEvent[] {
    const response = this.#resource;
    return this.#numbered([
      { type: "response.created", response },
      { type: "response.in_progress", response },
    ]);
  }

  of(said: Said): readonly NumberedEvent[] {
    return this.#numbered(this.#output.of(said));
  }

  /** @param response as it has ended. Clients that hear of an error alone do not know its response, and the other way round */
  end(response: ResponseResource): readonly NumberedEvent[] {
    const { status, error } = response;
    if (status === "completed" || status === "incomplete")
      return this.#numbered([{ type: `response.${status}`, response }]);
    const { code, message } = error ?? { code: "cancelled", message: "the response was cancelled" };
    return this.#numbered([
      { type: "error", error: { type: "server_error", code, message, param: "" } },
      { type: "response.failed", response },
    ]);
  }

  fail(message: string, error: unknown): readonly NumberedEvent[] {
    // Clients want to hear of the response before they hear of its end.
    const begun = this.#sequence === 0 ? this.begin() : [];
    const fields = errorFields(error, message);
    const end = failedEnd(fields.code, message);
    const { usage } = this.#output;
    const response = { ...this.#resource, ...end, output: this.#output.cutOff(), usage, store: false };
    const events = [
      { type: "error", error: fields },
      { type: "response.failed", response },
    ];
    return [...begun, ...this.#numbered(events)];
  }

  /** The stream ends before the response. With the number of the event before it: readers go on after that. */
  cut(message: string): NumberedEvent {
    const [type, number] = ["error", Math.max(0, this.#sequence - 1)];
    return { type, number, json: JSON.stringify({ type, sequence_number: number, error: errorFields(null, message) }) };
  }

  #numbered(events: readonly ResponseEvent[]): readonly NumberedEvent[] {
    return events.map(({ type, ...rest }) => {
      const number = this.#sequence++;
      return { type, number, json: JSON.stringify({ type, sequence_number: number, ...rest }) };
    });
  }
}
