/**
 * Responses over a WebSocket: each message `response.create` is answered with the events of a response, one response after the other.
 * The newest response of a socket can be continued there although it is not stored.
 */
import { setMaxListeners } from "node:events";
import type { CreateResponseRequest } from "../../generated/types.ts";
import { validators } from "../../generated/validators.js";
import type { RunCall } from "../agents/run/caller.ts";
import type { AgentPart, PartSink } from "../agents/run/parts.ts";
import type { ProtocolRun } from "../agents/run-requests.ts";
import { parseJsonText, requireExact, requireValid, type Validator } from "../http/decode.ts";
import type { Charge } from "../http/exchange.ts";
import type { Peer, SocketHandlers } from "../http/route.ts";
import { invalid, rateLimited, ServiceError, unavailable } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { logError } from "../observability/failures.ts";
import {
  continued,
  FIELDS,
  finished,
  type NewResponse,
  readResponseRequest,
  type ServiceOfResponses,
} from "./create-response.ts";
import { errorFields, inOwnWords, OpenaiError, statusOf, unsupported } from "./errors.ts";
import type { EarlierItems, ResponseResource } from "./items.ts";
import { agentOf } from "./models.ts";
import { ResponseEvents } from "./response-events.ts";
import { RunReader, type Said } from "./run-parts.ts";
import { isNothing } from "./tools.ts";

/* Writes to a WebSocket whose messages must all arrive: the writer has to wait while the peer is behind. */

/** Most bytes that may wait for the peer. More than one buffer of the transport, so that it reports when they are sent. */
const MAX_WAITING_BYTES = 64 * 1024;

class SocketWriter {
  readonly #peer: Peer;
  #behind: Promise<void> | undefined;
  #caughtUp: () => void = () => {};

  constructor(peer: Peer) {
    this.#peer = peer;
  }

  get closed(): boolean {
    return this.#peer.closed;
  }

  /** Undefined unless the peer is behind; resolves when it has caught up, or has left. */
  get behind(): Promise<void> | undefined {
    if (this.#peer.closed || this.#peer.buffered <= MAX_WAITING_BYTES) return undefined;
    this.#behind ??= new Promise((resolve) => {
      this.#caughtUp = resolve;
    });
    return this.#behind;
  }

  send(messages: readonly { readonly json: string }[]): void {
    if (messages.length === 0) return;
    this.#peer.cork(() => {
      for (const { json } of messages) this.#peer.deliver(json);
    });
  }

  /** Must be called when the peer has read some of what waits, and when it has left. */
  drained(): void {
    if (!this.#peer.closed && this.#peer.buffered > MAX_WAITING_BYTES) return;
    this.#behind = undefined;
    this.#caughtUp();
  }
}

/** Messages that may wait behind the one that is answered. */
const MAX_WAITING = 2;
/** How long a socket may be open: clients recognise the end by its code, and reconnect. */
const MAX_AGE_MS = 60 * 60_000;

/** Options of the request body that are not allowed in a message. */
const NOT_HERE: Readonly<Record<string, (value: unknown) => boolean>> = {
  background: (value) => value === true,
  generate: (value) => value === false,
  stream_id: (value) => !isNothing(value),
};

export function openResponsesSocket(peer: Peer, service: ServiceOfResponses, maxAge = MAX_AGE_MS): SocketHandlers {
  const { responses } = service;
  const socket = new ResponsesSocket(peer, service);
  // Every tool that runs in parallel adds a listener.
  setMaxListeners(0, peer.signal);
  const timer = setTimeout(() => socket.expire(), maxAge);
  timer.unref();
  return {
    message: (text, charge) => socket.message(text, charge),
    refuse: (error) => socket.refuse(error),
    drained: () => socket.writer.drained(),
    close() {
      clearTimeout(timer);
      socket.writer.drained();
      responses.recent.forget(peer);
    },
  };
}

class ResponsesSocket {
  readonly writer: SocketWriter;
  readonly #peer: Peer;
  readonly #service: ServiceOfResponses;
  /** The end of the previous message. */
  #turn: Promise<void> = Promise.resolve();
  /** Messages that have not been answered. */
  #unanswered = 0;

  constructor(peer: Peer, service: ServiceOfResponses) {
    this.#peer = peer;
    this.#service = service;
    this.writer = new SocketWriter(peer);
  }

  message(text: string, charge: Charge): Promise<void> {
    if (this.#unanswered > MAX_WAITING)
      return this.refuse(rateLimited(`${MAX_WAITING} messages wait for their answers: send the next one after that`));
    this.#unanswered++;
    return this.take(() => this.answer(text, charge).finally(() => this.#unanswered--));
  }

  /** Messages are handled one after the other. */
  take(work: () => Promise<void> | void): Promise<void> {
    this.#turn = this.#turn.then(() => (this.#peer.closed ? undefined : work()));
    return this.#turn;
  }

  /** Closes the socket once earlier messages have been answered. */
  expire(): void {
    const end = () => {
      const message = "the connection has been open for 60 minutes: connect anew";
      this.#tell(new OpenaiError("invalid_input", message, "websocket_connection_limit_reached", ""));
      this.#peer.close(1000, "the connection is too old");
    };
    this.take(end).catch(noop);
  }

  async answer(text: string, charge: Charge): Promise<void> {
    const { responses } = this.#service;
    let previous: string | null | undefined;
    try {
      if (responses.stopping) throw unavailable("the server is stopping");
      const body = readMessage(text);
      previous = body.previous_response_id;
      const working = this.#respond(body, charge);
      responses.working.during(working.then(noop, noop));
      await working;
    } catch (error) {
      this.#log(error);
      this.#tell(error);
      this.#evict(previous);
      // A client that reads nothing must not fill the memory with error messages.
      await this.writer.behind;
    }
  }

  /** @throws any error that occurs before the first event of the response was sent */
  async #respond(body: CreateResponseRequest, charge: Charge): Promise<void> {
    const { agents, responses } = this.#service;
    const { user, caller, requestId, signal, logger, trace, client } = this.#peer;
    const call: RunCall = { user, caller, requestId, signal, logger, trace, client, charge };
    const agent = agentOf(agents, body.model);
    const principal = responses.principalOf(call);
    const recent = this.#recent(body.previous_response_id);
    const begun = await readResponseRequest(body, principal, responses, { recent, charge });
    const run = inOwnWords(FIELDS, begun.messages, () => agent.prepare({ ...begun.asked, streams: true }, call));
    const events = new ResponseEvents(begun.record.resource, begun.output);
    const sink = new EventSink(run, events, this.writer);
    try {
      await run.start(sink);
      if (this.#peer.closed) return;
      const whole = await finished(begun, run, responses);
      this.writer.send(events.end(whole));
      this.#remember(begun, whole);
    } catch (error) {
      if (!sink.isOpen) throw error;
      this.#log(error);
      const message = error instanceof ServiceError ? error.message : this.#internal;
      this.writer.send(events.fail(message, error));
      this.#evict(body.previous_response_id);
    }
    await this.writer.behind;
  }

  /** Forgets the recent response: after a failure clients send the whole conversation again. */
  #evict(previous: string | null | undefined): void {
    if (this.#recent(previous) !== undefined) this.#service.responses.recent.forget(this.#peer);
  }

  #recent(id: string | null | undefined): EarlierItems | undefined {
    return isNothing(id) ? undefined : this.#service.responses.recent.get(this.#peer, id);
  }

  #remember({ record, earlier, output }: NewResponse, whole: ResponseResource): void {
    // What comes of one that waits is read from the store.
    if (output.waits && whole.store) return;
    this.#service.responses.recent.set(this.#peer, whole.id, continued(earlier, { ...record, resource: whole }));
  }

  /** Refuses a message without waiting for those before it, but only once the client has read what it was sent. */
  async refuse(error: unknown): Promise<void> {
    while (this.writer.behind !== undefined) await this.writer.behind;
    this.#tell(error);
  }

  #tell(error: unknown): void {
    const known = error instanceof ServiceError ? error : new ServiceError("internal", this.#internal);
    this.writer.send([{ json: JSON.stringify({ type: "error", status: statusOf(known), error: errorFields(known) }) }]);
  }

  get #internal(): string {
    return `internal error (request id ${this.#peer.requestId})`;
  }

  #log(error: unknown): void {
    if (!this.#peer.closed) logError(this.#peer.logger, error);
  }
}

const noop = (): void => {};

/** @throws ServiceError `invalid_input` that names the field */
function readMessage(text: string): CreateResponseRequest {
  const message = parseJsonText(text);
  if (!isObject(message)) throw invalid("the message must be a JSON object");
  requireExact(text, "message");
  const { type, ...body } = message;
  if (type !== "response.create") throw invalid('type must be "response.create"');
  for (const [field, isRefused] of Object.entries(NOT_HERE))
    if (isRefused(body[field])) throw unsupported(field, "is not available over WebSockets");
  requireValid(validators.CreateResponseRequest as Validator, body);
  return body as unknown as CreateResponseRequest;
}

/** Sends the output of a run. */
class EventSink implements PartSink {
  /** Whether the first event of the response was sent. */
  isOpen = false;
  readonly #events: ResponseEvents;
  readonly #reader: RunReader;
  readonly #writer: SocketWriter;

  constructor(run: ProtocolRun, events: ResponseEvents, writer: SocketWriter) {
    this.#reader = new RunReader(run);
    this.#events = events;
    this.#writer = writer;
  }

  get closed(): boolean {
    return this.#writer.closed;
  }

  accepted(): void {
    this.isOpen = true;
    this.#writer.send(this.#events.begin());
  }

  part(part: AgentPart): Promise<void> | undefined {
    for (const said of this.#reader.read(part)) this.#say(said);
    return this.#writer.behind;
  }

  #say(said: Said): void {
    this.#writer.send(this.#events.of(said));
  }
}
