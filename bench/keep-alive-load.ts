/** A closed loop of POST requests over raw sockets. It uses little CPU, because the servers and the database share the cores. */
import { connect, type Socket } from "node:net";

interface Looped {
  requests: number;
  /** Number of replies that were not 2xx. */
  refused: number;
  /** In milliseconds. */
  p50: number;
  p99: number;
}

interface LoopPlan {
  port: number;
  connections: number;
  /** Time on the clock of `performance.now()` after which no request is sent. */
  until: number;
  path: string;
  /** Returns the body of the next request. */
  body(): string;
}

export async function runLoop(plan: LoopPlan): Promise<Looped> {
  const times: number[] = [];
  let refused = 0;
  const one = () =>
    new Promise<void>((resolve, reject) => {
      const socket = connect({ port: plan.port, host: "127.0.0.1", noDelay: true });
      let text = "";
      let sent = 0;
      const next = () => {
        sent = performance.now();
        if (sent > plan.until) socket.end(resolve);
        else send(socket, plan.path, plan.body());
      };
      socket.setEncoding("latin1").on("data", (chunk) => {
        text += chunk;
        const head = text.indexOf("\r\n\r\n");
        if (head < 0) return;
        const length = Number(/content-length: (\d+)/i.exec(text)?.[1]);
        if (text.length < head + 4 + length) return;
        times.push(performance.now() - sent);
        if (!text.startsWith("HTTP/1.1 2")) refused++;
        text = "";
        next();
      });
      socket.once("connect", next).once("error", reject);
    });
  await Promise.all(Array.from({ length: plan.connections }, one));
  times.sort((a, b) => a - b);
  const at = (share: number) => times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? Number.NaN;
  return { requests: times.length, refused, p50: at(0.5), p99: at(0.99) };
}

function send(socket: Socket, path: string, body: string): void {
  socket.write(
    `POST ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}
