/** The sinks of streamed replies, and the producers that write to them. */
/** The sink of a stream of events. */
export interface EventSink {
  /** Sends status and headers now, for example when the model has accepted the call. Further calls have no effect. */
  open(): void;
  /**
   * Queues one event, given as JSON text, and opens the stream if necessary. Events of one burst are sent in one write.
   * Returns a promise only when the reader is behind: await it before the next event (back-pressure).
   *
   * @param id number of the event. Default: one more than that of the last event, starting with 1.
   */
  send(json: string, id?: number): Promise<void> | undefined;
  /** True once the reader has left. */
  readonly closed: boolean;
  /** For producers that may be silent for long: `listener` is called once, when the reader leaves. At most one listener. */
  onLeave(listener: () => void): void;
}

/** Produces a streamed reply. An error before `open` becomes a plain error reply, a later one an error event in the stream. */
export type EventProducer = (sink: EventSink) => Promise<void>;

/** The sink of a stream of text. Nothing but the stream's own heartbeat is added to the text. */
export interface TextSink {
  /** Returns a promise only when the reader is behind: await it before the next text (back-pressure). */
  send(text: string): Promise<void> | undefined;
  /** True once the reader has left. */
  readonly closed: boolean;
  /** Called once when the reader leaves. At most one listener. */
  onLeave(listener: () => void): void;
}
