/** A collector: one request for each batch (OTLP specification, "OTLP/HTTP"). It tries nothing twice; who sends does. */
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { messageOf } from "../../errors.ts";
import { VERSION } from "../../version.ts";

export interface CollectorSettings {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Milliseconds until a request is given up. */
  readonly timeout?: number;
}

/** What became of a batch. */
export type Sent =
  /** `rejected` spans of it were not taken, for the reason given. */
  | { readonly kind: "sent"; readonly rejected: number; readonly message: string }
  /** It may be sent again, after some milliseconds if the collector said so. */
  | { readonly kind: "failed"; readonly reason: string; readonly after: number }
  /** The same would be refused again. */
  | { readonly kind: "refused"; readonly reason: string };

const TIMEOUT = 10_000;
/** Statuses after which a batch may be sent again; after all others it must not. */
const TEMPORARY: ReadonlySet<number> = new Set([429, 502, 503, 504]);
/** Characters of an answer that are read. */
const MOST = 16 * 1024;
const compress = promisify(gzip);

export class Collector {
  readonly #settings: CollectorSettings;
  readonly #closing = new AbortController();

  constructor(settings: CollectorSettings) {
    this.#settings = settings;
  }

  /** Never rejects. */
  async send(json: string): Promise<Sent> {
    const { url, headers, timeout = TIMEOUT } = this.#settings;
    try {
      const response = await fetch(url, {
        method: "POST",
        headers: { "user-agent": `Penstock/${VERSION}`, ...headers, ...FORM },
        body: await compress(json),
        // A collector somewhere else was not meant, and must not see the headers.
        redirect: "manual",
        signal: AbortSignal.any([this.#closing.signal, AbortSignal.timeout(timeout)]),
      });
      const text = await textOf(response);
      if (response.ok) return { kind: "sent", ...rejectionIn(text) };
      const reason = `status ${response.status}`;
      if (!TEMPORARY.has(response.status)) return { kind: "refused", reason };
      return { kind: "failed", reason, after: secondsOf(response.headers.get("retry-after")) * 1000 };
    } catch (error) {
      return { kind: "failed", reason: reasonOf(error), after: 0 };
    }
  }

  /** Gives up what is on its way. */
  close(): void {
    this.#closing.abort();
  }
}

const FORM = { "content-type": "application/json", "content-encoding": "gzip" };

async function textOf({ body }: Response): Promise<string> {
  if (body === null) return "";
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of body) {
    text += decoder.decode(chunk as Uint8Array, { stream: true });
    if (text.length > MOST) break;
  }
  return text;
}

/** `partialSuccess` of an answer. What makes no sense says nothing: the spans were taken. */
function rejectionIn(text: string): { rejected: number; message: string } {
  try {
    const { rejectedSpans = 0, errorMessage = "" } = JSON.parse(text)?.partialSuccess ?? {};
    return {
      rejected: Math.max(0, Math.trunc(Number(rejectedSpans)) || 0),
      message: String(errorMessage).slice(0, 500),
    };
  } catch {
    return { rejected: 0, message: "" };
  }
}

/** A date there is left to our own pauses. */
const secondsOf = (header: string | null) => Math.max(0, Number(header ?? 0) || 0);

/** `fetch` says what went wrong in the cause, which for a name with several addresses has a code alone. */
function reasonOf(error: unknown): string {
  if (error instanceof Error && error.name === "TimeoutError") return "no answer in time";
  const { cause } = error as { cause?: { message?: string; code?: string } };
  return cause?.message || cause?.code || messageOf(error);
}
