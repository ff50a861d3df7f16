/** In-process WebSocket handshakes, the counterpart of `inject` for requests. */
import type { OpenSocket, SocketEvents, SocketOptions, Upgrade } from "../../core/http/exchange.ts";
import { InjectedExchange, type InjectedReply, type InjectOptions } from "./inject.ts";

/** The client's side of an accepted handshake. Messages are delivered at once. */
class InjectedSocket {
  /** Messages that were sent to the client. */
  readonly received: string[] = [];
  /** The close code; null while the socket is open. */
  code: number | null = null;
  readonly #events: SocketEvents;

  constructor(open: (socket: OpenSocket) => SocketEvents) {
    const end = (code: number) => this.#end(code);
    this.#events = open({
      buffered: 0,
      send: (text) => void this.received.push(Buffer.from(text as string).toString()),
      cork: (work) => work(),
      close: (code) => setImmediate(end, code),
      destroy: () => setImmediate(end, 1006),
    });
  }

  send(text: string): void {
    if (this.code === null) this.#events.message(text);
  }

  close(code = 1000): void {
    this.#end(code);
  }

  #end(code: number): void {
    if (this.code !== null) return;
    this.code = code;
    this.#events.ended(code);
  }
}

class InjectedUpgrade extends InjectedExchange implements Upgrade {
  socket: InjectedSocket | null = null;

  accept(open: (socket: OpenSocket) => SocketEvents): void {
    if (this.closed) return;
    this.socket = new InjectedSocket(open);
    this.reply(101, [], null);
  }
}

/** Sends one handshake through `dispatch`; resolves with the refusal, or with status 101 and the open socket. */
export function injectUpgrade(
  dispatch: SocketOptions["dispatch"],
  options: Pick<InjectOptions, "path" | "headers">,
): Promise<InjectedReply & { socket: InjectedSocket | null }> {
  return new Promise((resolve, reject) => {
    const upgrade = new InjectedUpgrade(
      { ...options, method: "GET" },
      (reply) => resolve({ ...reply, socket: upgrade.socket }),
      reject,
    );
    dispatch(upgrade);
    upgrade.leaveDispatch();
  });
}
