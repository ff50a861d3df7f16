/**
 * Standard output as the log writes to it. A disk that is full, a reader that has gone or does not read, a descriptor that is closed:
 * lines that cannot be written are lost and counted, one line says how many as soon as there is a way again, and whoever logs hears
 * nothing of it.
 */
import { writeSync } from "node:fs";
import { headed } from "./log-line.ts";

/** A reader that is slow, not gone: what it is to read waits. */
const TEMPORARY_ERRORS: ReadonlySet<string> = new Set(["EAGAIN", "EBUSY", "EINTR"]);
/** Bytes that wait for it. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;
/** Milliseconds until the next try: for a slow reader, and for what somebody has to mend. */
const SLOW_READER_RETRY_MS = 20;
const FAILURE_RETRY_MS = 1_000;
/** Milliseconds for the last lines, when the process ends. */
const EXIT_TIMEOUT_MS = 1_000;

interface Piece {
  readonly bytes: Uint8Array;
  written: number;
  /** Lines that it says are lost; 0: it is a line itself. */
  readonly tells: number;
}

export class LogOutput {
  readonly #descriptor: number;
  /** In order; the first may be written in part. */
  #waiting: Piece[] = [];
  #bytes = 0;
  #timer: NodeJS.Timeout | null = null;
  /** Lines of which nothing has been said, and why the last of them was lost. */
  #untold = 0;
  #code = "";
  /** The output ends in the middle of a line that is lost. */
  #torn = false;
  #watchesExit = false;
  /** Lines, since the beginning. */
  lost = 0;

  /** @param descriptor of an open file */
  constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  write(line: string): void {
    const bytes = Buffer.from(line);
    if (this.#bytes + bytes.length > MAX_WAITING_BYTES && this.#waiting.length > 0) {
      this.#lose();
      return;
    }
    this.#tell();
    this.#push({ bytes, written: 0, tells: 0 });
    // What waits for a slow reader goes out by the clock: to try with every line would cost every line.
    if (this.#timer === null || !TEMPORARY_ERRORS.has(this.#code)) this.#flush();
  }

  #push(piece: Piece): void {
    this.#waiting.push(piece);
    this.#bytes += piece.bytes.length;
  }

  /** Before anything else is written: what is missing is missing here. */
  #tell(): void {
    const lost = this.#untold;
    if (lost === 0) return;
    this.#untold = 0;
    const msg = `${lost} ${lost === 1 ? "line" : "lines"} of the log could not be written: ${this.#code}`;
    const head = `{"level":"warn","time":"${new Date().toISOString()}"`;
    const text = `${headed(head, { lost, code: this.#code, msg })}\n`;
    this.#push({ bytes: Buffer.from(this.#torn ? `\n${text}` : text), written: 0, tells: lost });
  }

  #flush(): void {
    try {
      for (let piece = this.#waiting[0]; piece !== undefined; piece = this.#waiting[0]) {
        while (piece.written < piece.bytes.length) piece.written += this.#put(piece);
        this.#torn = false;
        this.#waiting.shift();
        this.#bytes -= piece.bytes.length;
      }
    } catch (error) {
      this.#code = String((error as NodeJS.ErrnoException).code);
      const passing = TEMPORARY_ERRORS.has(this.#code);
      if (!passing) this.#drop();
      this.#tryAgain(passing ? SLOW_READER_RETRY_MS : FAILURE_RETRY_MS);
    }
  }

  /** Writes as much of a piece as goes. @returns how many bytes that was */
  #put({ bytes, written }: Piece): number {
    const count = writeSync(this.#descriptor, bytes, written);
    if (count === 0) throw Object.assign(new Error("nothing was written"), { code: "EAGAIN" });
    return count;
  }

  #drop(): void {
    if ((this.#waiting[0]?.written ?? 0) > 0) this.#torn = true;
    for (const { tells } of this.#waiting) {
      if (tells > 0) this.#untold += tells;
      else this.#lose();
    }
    this.#waiting = [];
    this.#bytes = 0;
  }

  #lose(): void {
    this.lost++;
    this.#untold++;
  }

  #tryAgain(milliseconds: number): void {
    if (!this.#watchesExit) process.once("exit", () => this.#end());
    this.#watchesExit = true;
    this.#timer ??= setTimeout(() => this.#goOn(), milliseconds).unref();
  }

  #goOn(): void {
    this.#timer = null;
    this.#flush();
    if (this.#waiting.length > 0) return;
    this.#tell();
    this.#flush();
  }

  /** The last lines say why a process ends: a reader that is slow is waited for. */
  #end(): void {
    const until = performance.now() + EXIT_TIMEOUT_MS;
    this.#goOn();
    while (this.#waiting.length > 0 && performance.now() < until) {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, SLOW_READER_RETRY_MS);
      this.#goOn();
    }
  }
}
