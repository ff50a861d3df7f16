/** The events of a response, in the order and with the numbers that clients check. */
import { errorFields } from "./errors.ts";
import { failedEnd, type ResponseResource } from "./resource.ts";
import type { ResponseEvent, ResponseOutput } from "./response-output.ts";
import type { Said } from "./run-parts.ts";

/** An event as it is sent. */
export interface NumberedEvent {
  readonly type: string;
  readonly number: number;
  readonly json: string;
}

export class ResponseEvents {
  readonly #resource: ResponseResource;
  readonly #output: ResponseOutput;
  #sequence = 0;

  /** @param resource at the start of the response */
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

  /** @param response at its end. A failure is sent as two events, because some clients read only the error, and others only the response */
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
    // Clients expect the start of a response before its end.
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

  /** The error event when the stream ends before the response. It has the number of the previous event, after which readers continue. */
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
