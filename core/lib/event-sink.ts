/** Where a streamed reply is written to. */

/** The sink of a streamed reply. */
export interface EventSink {
  /** Sends status and headers now; later calls do nothing (when the model has accepted the call). */
  open(): void;
  /**
   * Queues one event, given as JSON text, and opens the stream if need be. Events of one burst leave in one write.
   * Returns a promise only when the reader is behind: await it before the next event (back-pressure).
   *
   * @param id its number, from which those that follow count on. Left out: one more than that of the last one, from 1.
   */
  send(json: string, id?: number): Promise<void> | undefined;
  /** True once the reader is gone. */
  readonly closed: boolean;
  /** Has a producer told that has nothing to send for long: called once when the reader leaves. At most one listener. */
  onLeave(listener: () => void): void;
}

/** Produces a streamed reply. A throw before `open` is a plain error reply, after it an in-band event. */
export type EventProducer = (sink: EventSink) => Promise<void>;

/** The sink of a stream of text. Nothing is added to what is sent but the stream's own heartbeat. */
export interface TextSink {
  /** Returns a promise only when the reader is behind: await it before the next text (back-pressure). */
  send(text: string): Promise<void> | undefined;
  /** True once the reader is gone. */
  readonly closed: boolean;
  /** Called once when the reader leaves. At most one listener. */
  onLeave(listener: () => void): void;
}
