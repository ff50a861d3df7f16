/**
 * A response that is never sent. Handshakes that had to wait for a check of credentials are accepted inside its cork.
 *
 * A response that becomes a socket inside its own cork keeps its address, and at the end of the cork the addon (3.0.6) reads the flags of
 * the response from memory that may have been reused by then: one new process in thirty closed a socket right after its 101.
 * Outside of any cork the addon writes a warning to standard error. The cork of another response avoids both, and this is that response.
 */
import { connect } from "node:net";
import type { Native, NativeListenSocket, NativeResponse } from "./uws-native.ts";

export interface Unanswered {
  /** Null when its connection is lost. */
  readonly response: NativeResponse | null;
  close(): void;
}

const REQUEST = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

/** Opens the response over a connection of the process to itself. Rejects when there is no loopback. */
export async function openUnanswered(native: Native): Promise<Unanswered> {
  const app = native.App();
  const unanswered = { response: null as NativeResponse | null, close: () => app.close() };
  const arrived = new Promise<void>((resolve) => {
    app.any("/*", (response) => {
      unanswered.response = response;
      response.onAborted(() => {
        unanswered.response = null;
      });
      resolve();
    });
  });
  const listening = await new Promise<NativeListenSocket | false>((resolve) => {
    app.listen("127.0.0.1", 0, native.LIBUS_LISTEN_EXCLUSIVE_PORT, resolve);
  });
  if (listening === false) throw new Error("cannot listen on 127.0.0.1");
  const client = connect(native.us_socket_local_port(listening), "127.0.0.1");
  try {
    const failed = new Promise<never>((_resolve, reject) => client.once("error", reject));
    client.unref().write(REQUEST);
    await Promise.race([arrived, failed]);
  } finally {
    native.us_listen_socket_close(listening);
  }
  return unanswered;
}
