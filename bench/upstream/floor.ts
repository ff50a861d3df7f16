/**
 * The minimum work of any gateway on this transport: uWebSockets.js reads a request, undici calls the provider, each chunk is parsed once,
 * and the answer is sent as one JSON or as events. `floor.ts ORIGIN`; its port is reported to the parent.
 */

import uws, { type HttpResponse } from "uWebSockets.js";
import { Pool } from "undici";
import { ask, type Reader, type Usage } from "./wire.ts";

const pool = new Pool(process.argv[2]!, { headersTimeout: 0, bodyTimeout: 0 });
const MODEL = "bench";
const NO_USAGE: Usage = { prompt_tokens: 0, completion_tokens: 0 };

abstract class Reply implements Reader {
  readonly response: HttpResponse;
  gone = false;
  reason = "";
  used = NO_USAGE;

  constructor(response: HttpResponse) {
    this.response = response;
  }

  finish(reason: string): void {
    this.reason = reason;
  }

  usage(usage: Usage): void {
    this.used = usage;
  }

  fail(error: Error): void {
    if (this.gone) return;
    this.gone = true;
    this.response.cork(() => this.response.writeStatus("502 Bad Gateway").end(error.message));
  }

  abstract accepted(): void;
  abstract text(delta: string): void;
  abstract pause(): void;
  abstract end(): void;
}

class TextReply extends Reply {
  #text = "";

  accepted(): void {}
  pause(): void {}

  text(delta: string): void {
    this.#text += delta;
  }

  end(): void {
    if (this.gone) return;
    this.gone = true;
    const data = { text: this.#text, finishReason: this.reason, usage: this.used };
    const body = JSON.stringify({ success: true, data });
    this.response.cork(() => this.response.writeHeader("content-type", "application/json").end(body));
  }
}

class StreamReply extends Reply {
  #pending = "";
  #begun = false;
  #scheduled = false;
  #over = false;
  #events = 0;

  #event(event: unknown): void {
    this.#events += 1;
    this.#pending += `id: ${this.#events}\ndata: ${JSON.stringify(event)}\n\n`;
  }

  accepted(): void {
    this.#event({ type: "start" });
  }

  text(delta: string): void {
    this.#event({ type: "text-delta", id: "0", delta });
  }

  /** Sends the events of one turn in one write. */
  pause(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    process.nextTick(flush, this);
  }

  end(): void {
    this.#event({ type: "finish", finishReason: this.reason, totalUsage: this.used });
    this.#over = true;
    this.pause();
  }

  flush(): void {
    this.#scheduled = false;
    if (this.gone) return;
    const chunk = this.#pending;
    this.#pending = "";
    this.response.cork(() => {
      if (!this.#begun) {
        this.#begun = true;
        this.response.writeHeader("content-type", "text/event-stream");
      }
      if (!this.#over) this.response.write(chunk);
      else {
        this.gone = true;
        this.response.end(chunk);
      }
    });
  }
}

function flush(reply: StreamReply): void {
  reply.flush();
}

/** `/text/SPEED` and `/stream/SPEED`: the rest of the path goes to the provider. */
function serve(kind: "text" | "stream") {
  return (response: HttpResponse, request: { getUrl(): string }) => {
    const path = `${request.getUrl().slice(kind.length + 1)}/v1/chat/completions`;
    const reply = kind === "text" ? new TextReply(response) : new StreamReply(response);
    let rest = "";
    let call: { cancel(): void } | undefined;
    response.onAborted(() => {
      reply.gone = true;
      call?.cancel();
    });
    response.onData((bytes, last) => {
      rest += Buffer.from(bytes).toString();
      if (!last || reply.gone) return;
      const { input } = JSON.parse(rest) as { input: string };
      const messages = [{ role: "user", content: input }];
      const body = { model: MODEL, messages, stream: true, stream_options: { include_usage: true } };
      call = ask(pool, path, body, reply);
    });
  };
}

// Undocumented switch: no `uWebSockets: 20` header.
(uws as unknown as { _cfg(option: string): void })._cfg("silent");
uws
  .App()
  .post("/text/*", serve("text"))
  .post("/stream/*", serve("stream"))
  .listen("127.0.0.1", 0, (socket) => {
    if (!socket) throw new Error("the floor cannot listen");
    process.send?.({ port: uws.us_socket_local_port(socket) });
  });
