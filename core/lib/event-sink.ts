/** What producers of streamed replies write to. */

/** The sink of a streamed reply. */
export interface EventSink {
  /** Sends status and headers now; later calls do nothing (when the model has accepted the call). */
  open(): void;
  /**
   * Queues one event, given as JSON text, and opens the stream if need be. Events of one burst leave in one write.
   * Returns a promise only when the reader is behind: await it before the next event (back-pressure).
   *
   * @param id the number of the event; later ones count on from it. Left out: one more than the last, from 1.
   */
  send(json: string, id?: number): Promise<void> | undefined;
  /** True once the reader is gone. */
  readonly closed: boolean;
  /** Calls the listener once when the reader leaves, for producers that are idle for long. At most one listener. */
  onLeave(listener: () => void): void;
}

/** Produces a streamed reply. A throw before `open` is a plain error reply, after it an in-band event. */
export type EventProducer = (sink: EventSink) => Promise<void>;

/** The sink of a stream of text, which is sent as it is; only the stream's heartbeat is added. */
export interface TextSink {
  /** Returns a promise only when the reader is behind: await it before the next text (back-pressure). */
  send(text: string): Promise<void> | undefined;
  /** True once the reader is gone. */
  readonly closed: boolean;
  /** Called once when the reader leaves. At most one listener. */
  onLeave(listener: () => void): void;
}
