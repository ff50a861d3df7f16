/** New log lines for the sockets that follow the log: each is parsed once, and only while a socket follows. */
import { Feed } from "../../http/feed.ts";
import { type LogEntry, type LogRecord, type LogRing, logRecord, parseLogEntry } from "../../observability/log-line.ts";

/** Lines that are kept for slow sockets. */
const FEED_LINES = 1024;

export class LogNews {
  /** The line as pino wrote it and the ring keeps it. */
  readonly line: string;
  #entry: LogEntry | null = null;
  #record: LogRecord | null = null;
  #update: Uint8Array | null = null;
  #text: Uint8Array | null = null;

  constructor(line: string) {
    this.line = line;
  }

  get entry(): LogEntry {
    this.#entry ??= parseLogEntry(this.line);
    return this.#entry;
  }

  /** The message of `/ws/logs`. */
  get update(): Uint8Array {
    if (this.#update === null) {
      const { timestamp } = this.entry;
      this.#update = Buffer.from(JSON.stringify({ type: "update", logs: [this.entry], timestamp }));
    }
    return this.#update;
  }

  get record(): LogRecord {
    this.#record ??= logRecord(this.entry);
    return this.#record;
  }

  /** The message of `/ws/observability`. */
  get text(): Uint8Array {
    this.#text ??= Buffer.from(JSON.stringify({ type: "OBSERVABILITY_LOG", success: true, data: this.record }));
    return this.#text;
  }
}

/** A feed of everything that is written to the ring from now on. */
export function logFeed(ring: LogRing): Feed<LogNews> {
  const feed = new Feed<LogNews>(FEED_LINES);
  ring.listener = (line) => {
    if (feed.size > 0) feed.publish(new LogNews(line));
  };
  return feed;
}
