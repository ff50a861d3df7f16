/** A TCP proxy that breaks connections at the moment that a test chooses. */
import { once } from "node:events";
import { connect, createServer, type NetConnectOpts, type Socket } from "node:net";

type CutTime = "before" | "answered" | "late";

export interface CutProxy {
  readonly port: number;
  /**
   * Breaks the next connection on which a client sends something that contains `text`: before the server gets it, when
   * the server has answered it and the client does not know yet, or so that the server gets it later, by `deliver`.
   */
  cut(text: string, when: CutTime): void;
  /** Resolves when the server has answered. */
  deliver(): Promise<void>;
  /** How often it did. */
  readonly cuts: number;
  /** Whether answers of the server are held back: the connection is there, and nothing comes. */
  freeze(frozen: boolean): void;
  /** Whether the server is gone: all connections break, and new ones are refused. */
  away(isAway: boolean): void;
  /** Where new connections lead from now on. Those that are there stay where they are. */
  lead(target: NetConnectOpts): void;
  /** Breaks all connections. */
  cutAll(): void;
  /** The connections that are there say nothing any more, in either direction, and do not end: as those of a machine that is gone. */
  silence(): void;
  /** Whether connections are refused after the cut. */
  refuse(refused: boolean): void;
  close(): Promise<void>;
}

export async function startCutProxy(target: NetConnectOpts): Promise<CutProxy> {
  const sockets = new Set<Socket>();
  let plan: { text: string; when: CutTime } | null = null;
  let late: { upstream: Socket; chunk: Buffer } | null = null;
  let refusing = false;
  let refuseAfterCut = false;
  let cuts = 0;
  let frozen = false;
  const upstreams = new Set<Socket>();
  const silencers = new Set<() => void>();

  const keep = (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => socket.destroy());
    socket.on("close", () => sockets.delete(socket));
  };

  const server = createServer((client) => {
    keep(client);
    if (refusing) {
      client.destroy();
      return;
    }
    const upstream = connect(target);
    keep(upstream);
    upstreams.add(upstream);
    client.on("close", () => {
      if (late?.upstream !== upstream) upstream.destroy();
    });
    upstream.on("close", () => {
      upstreams.delete(upstream);
      client.destroy();
    });
    let deaf = false;
    silencers.add(() => {
      for (const socket of [client, upstream]) socket.removeAllListeners("data").removeAllListeners("close").pause();
      client.on("close", () => upstream.destroy());
    });
    const breakUp = () => {
      cuts++;
      refusing = refuseAfterCut;
      client.destroy();
      upstream.destroy();
    };
    /** The end of what came before, while there is a plan: its text may come in two chunks. */
    let tail: Buffer = Buffer.alloc(0);
    client.on("data", (chunk: Buffer) => {
      const seen = Buffer.concat([tail, chunk]);
      tail = seen.subarray(plan === null ? seen.length : Math.max(0, seen.length - plan.text.length + 1));
      if (plan !== null && seen.includes(plan.text)) {
        const { when } = plan;
        plan = null;
        if (when === "before") {
          breakUp();
          return;
        }
        if (when === "late") {
          late = { upstream, chunk };
          cuts++;
          client.destroy();
          return;
        }
        deaf = true;
      }
      upstream.write(chunk);
    });
    upstream.on("data", (chunk) => {
      if (deaf) breakUp();
      else client.write(chunk);
    });
    if (frozen) upstream.pause();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the proxy has no port");

  return {
    port: address.port,
    cut(text, when) {
      plan = { text, when };
    },
    async deliver() {
      if (late === null) throw new Error("nothing was cut to be delivered later");
      const { upstream, chunk } = late;
      late = null;
      // The server may have ended the connection, or end it at this.
      if (upstream.destroyed) return;
      upstream.write(chunk);
      await new Promise((resolve) => upstream.once("data", resolve).once("close", resolve));
      upstream.destroy();
    },
    get cuts() {
      return cuts;
    },
    freeze(on) {
      frozen = on;
      for (const socket of upstreams) {
        if (on) socket.pause();
        else socket.resume();
      }
    },
    away(isAway) {
      refusing = isAway;
      if (isAway) for (const socket of sockets) socket.destroy();
    },
    lead(other) {
      target = other;
    },
    cutAll() {
      for (const socket of sockets) socket.destroy();
    },
    silence() {
      for (const silence of silencers) silence();
      silencers.clear();
    },
    refuse(refused) {
      refuseAfterCut = refused;
      if (!refused) refusing = false;
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}
