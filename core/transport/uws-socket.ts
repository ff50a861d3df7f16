/** One open WebSocket over uWebSockets.js, and the behaviour of all sockets of a listener. */
import type { OpenSocket, SocketEvents } from "../http/exchange.ts";
import type { NativeRequest, NativeResponse, NativeSocket, NativeSocketBehavior } from "./uws-native.ts";

/**
 * A peer that is silent for this time is disconnected. The addon sends a ping 16 s earlier, after 30 s; anything that arrives counts as
 * an answer.
 */
const IDLE_TIMEOUT_SECONDS = 46;
/**
 * The addon's own limit is higher by this factor, because it disconnects without a close frame: a message between the two limits
 * closes the socket with 1009.
 */
const NATIVE_LIMIT_FACTOR = 2;
/** The code of a socket that ends without a close frame, and the addon's reason for a message beyond its own limit. */
const ABNORMAL_CLOSE = 1006;
const NATIVE_TOO_LARGE = Buffer.from("Received too big message");
/** Pings that a peer may send while it reads nothing. The answers pile up, so a peer that sends more is disconnected. */
const MAX_UNREAD_PINGS = 60;

/** The callbacks that sockets need from their listener. */
export interface UwsSocketHost {
  /** Called for every GET with a key of the right length. */
  upgrade(response: NativeResponse, request: NativeRequest, context: object): void;
  /** Called when a socket has closed: the addon does not report the end of connections that became sockets. */
  onClosed(): void;
  /** Called when a message was too large. */
  onTooLarge(): void;
  /** Reports an error of a callback: errors must not be thrown into native code. */
  report(error: unknown): void;
}

export class UwsSocket implements OpenSocket {
  readonly #open: (socket: OpenSocket) => SocketEvents;
  /** Null before the socket is open and after it has closed. */
  #native: NativeSocket | null = null;
  #events: SocketEvents | null = null;
  /** Pings that arrived since data has been waiting for the peer. */
  #pings = 0;

  constructor(open: (socket: OpenSocket) => SocketEvents) {
    this.#open = open;
  }

  opened(native: NativeSocket): void {
    this.#native = native;
    this.#events = this.#open(this);
  }

  message(text: string): void {
    this.#events?.message(text);
  }

  pinged(): void {
    if (this.buffered === 0) this.#pings = 0;
    else if (++this.#pings > MAX_UNREAD_PINGS) this.destroy();
  }

  drained(): void {
    // The socket may have closed since the addon reported this.
    if (this.#native !== null) this.#events?.drained();
  }

  ended(code: number): void {
    this.#native = null;
    this.#events?.ended(code);
  }

  get buffered(): number {
    return this.#native === null ? 0 : this.#native.getBufferedAmount();
  }

  send(text: string | Uint8Array): void {
    this.#native?.send(text, false);
  }

  cork(work: () => void): void {
    if (this.#native === null) {
      work();
      return;
    }
    let thrown: { error: unknown } | null = null;
    this.#native.cork(() => {
      try {
        work();
      } catch (error) {
        thrown = { error };
      }
    });
    if (thrown !== null) throw (thrown as { error: unknown }).error;
  }

  close(code: number, reason: string): void {
    this.#native?.end(code, reason);
  }

  destroy(): void {
    this.#native?.close();
  }
}

/** @param limit largest message in bytes */
export function socketBehavior(limit: number, host: UwsSocketHost): NativeSocketBehavior {
  const guard = (work: () => void): void => {
    try {
      work();
    } catch (error) {
      host.report(error);
    }
  };
  return {
    maxPayloadLength: Math.min(limit * NATIVE_LIMIT_FACTOR, 2 ** 31 - 1),
    idleTimeout: IDLE_TIMEOUT_SECONDS,
    sendPingsAutomatically: true,
    maxBackpressure: 0, // the sender bounds `buffered`
    compression: 0,
    upgrade: (response, request, context) => host.upgrade(response, request, context),
    open: (native) => guard(() => socketOf(native).opened(native)),
    message(native, bytes, isBinary) {
      if (isBinary) native.end(1003, "text messages only");
      else if (bytes.byteLength > limit) {
        host.onTooLarge();
        native.end(1009, `a message is larger than ${limit} bytes`);
      } else guard(() => socketOf(native).message(Buffer.from(bytes).toString("utf8")));
    },
    drain(native) {
      const socket = socketOf(native);
      // Not within this callback: part of what is sent here would wait until the next ping.
      setImmediate(guard, () => socket.drained());
    },
    ping: (native) => guard(() => socketOf(native).pinged()),
    close(native, code, reason) {
      host.onClosed();
      if (code === ABNORMAL_CLOSE && Buffer.from(reason).equals(NATIVE_TOO_LARGE)) host.onTooLarge();
      guard(() => socketOf(native).ended(code));
    },
  };
}

const socketOf = (native: NativeSocket): UwsSocket => (native.getUserData() as { readonly socket: UwsSocket }).socket;
