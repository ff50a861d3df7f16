/**
 * Writes the log to standard output in the chosen format, and never fails. When lines cannot be written (the disk is full, the reader
 * has left or does not read, the descriptor is closed), they are dropped and counted. Once writing works again, one line reports how
 * many are missing.
 */
import { writeSync } from "node:fs";
import { joinLine } from "./log-line.ts";

/** Errors that mean that the reader is slow, but has not left: lines wait for it. */
const TEMPORARY_ERRORS: ReadonlySet<string> = new Set(["EAGAIN", "EBUSY", "EINTR"]);
/** Most bytes of lines that wait for a slow reader. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;
const SLOW_READER_RETRY_MS = 20;
/** Delay after other failures, which need a repair. */
const FAILURE_RETRY_MS = 1_000;
/** How long to wait for the last lines when the process ends. */
const EXIT_TIMEOUT_MS = 1_000;

interface Piece {
  readonly bytes: Uint8Array;
  written: number;
  /** For a line that reports lost lines: their number. 0 for any other line. */
  readonly reportsLost: number;
}

export class LogOutput {
  readonly #descriptor: number;
  /** The lines in order; the first one may be partly written. */
  #waiting: Piece[] = [];
  #bytes = 0;
  #timer: NodeJS.Timeout | null = null;
  /** Lost lines that have not been reported, and the error code of the last failure. */
  #unreported = 0;
  #code = "";
  /** Whether the output ends in the middle of a line whose rest is lost. */
  #torn = false;
  #watchesExit = false;
  /** Number of lost lines since the start. */
  lost = 0;
  /** Formats a line. */
  format = (line: string): string => line;

  /** @param descriptor of an open file */
  constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  write(line: string): void {
    const bytes = Buffer.from(this.format(line));
    if (this.#bytes + bytes.length > MAX_WAITING_BYTES && this.#waiting.length > 0) {
      this.#countLost();
      return;
    }
    this.#reportLost();
    this.#push({ bytes, written: 0, reportsLost: 0 });
    // For a slow reader a timer tries again: trying with every line would make every line expensive.
    if (this.#timer === null || !TEMPORARY_ERRORS.has(this.#code)) this.#flush();
  }

  #push(piece: Piece): void {
    this.#waiting.push(piece);
    this.#bytes += piece.bytes.length;
  }

  /** Called before the next line is written, so that the report is at the place of the missing lines. */
  #reportLost(): void {
    const lost = this.#unreported;
    if (lost === 0) return;
    this.#unreported = 0;
    const msg = `${lost} ${lost === 1 ? "line" : "lines"} of the log could not be written: ${this.#code}`;
    const head = `{"level":"warn","time":"${new Date().toISOString()}"`;
    const text = this.format(`${joinLine(head, { lost, code: this.#code, msg })}\n`);
    this.#push({ bytes: Buffer.from(this.#torn ? `\n${text}` : text), written: 0, reportsLost: lost });
  }

  #flush(): void {
    try {
      for (let piece = this.#waiting[0]; piece !== undefined; piece = this.#waiting[0]) {
        while (piece.written < piece.bytes.length) piece.written += this.#writePart(piece);
        this.#torn = false;
        this.#waiting.shift();
        this.#bytes -= piece.bytes.length;
      }
    } catch (error) {
      this.#code = String((error as NodeJS.ErrnoException).code);
      const passing = TEMPORARY_ERRORS.has(this.#code);
      if (!passing) this.#drop();
      this.#scheduleRetry(passing ? SLOW_READER_RETRY_MS : FAILURE_RETRY_MS);
    }
  }

  /** Writes as much of a piece as possible. @returns the number of bytes */
  #writePart({ bytes, written }: Piece): number {
    const count = writeSync(this.#descriptor, bytes, written);
    if (count === 0) throw Object.assign(new Error("nothing was written"), { code: "EAGAIN" });
    return count;
  }

  #drop(): void {
    if ((this.#waiting[0]?.written ?? 0) > 0) this.#torn = true;
    for (const { reportsLost } of this.#waiting) {
      if (reportsLost > 0) this.#unreported += reportsLost;
      else this.#countLost();
    }
    this.#waiting = [];
    this.#bytes = 0;
  }

  #countLost(): void {
    this.lost++;
    this.#unreported++;
  }

  #scheduleRetry(milliseconds: number): void {
    if (!this.#watchesExit) process.once("exit", () => this.#end());
    this.#watchesExit = true;
    this.#timer ??= setTimeout(() => this.#retry(), milliseconds).unref();
  }

  #retry(): void {
    this.#timer = null;
    this.#flush();
    if (this.#waiting.length > 0) return;
    this.#reportLost();
    this.#flush();
  }

  /** Waits for a slow reader, because the last lines say why the process ends. */
  #end(): void {
    const until = performance.now() + EXIT_TIMEOUT_MS;
    this.#retry();
    while (this.#waiting.length > 0 && performance.now() < until) {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, SLOW_READER_RETRY_MS);
      this.#retry();
    }
  }
}
