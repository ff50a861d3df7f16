/** Downloads one file that a client has named by URL, within bounds. */
import type { Readable } from "node:stream";
import undici from "undici";
import { createOutboundAgent, hasProxy } from "../../lib/outbound.ts";
import { AllowedAddresses } from "./allowed-addresses.ts";

export interface DownloadedFile {
  readonly data: Uint8Array;
  /** The content type that the server sent. */
  readonly mediaType: string | undefined;
}

export interface Downloader {
  /** @param budget bytes that are left; reduced by what was read */
  download(url: URL, budget: { bytes: number }, signal: AbortSignal): Promise<DownloadedFile>;
  close(): Promise<void>;
}

const MAX_REDIRECTS = 5;
const CONNECT_TIMEOUT_MS = 5_000;

/** @param allowPrivate host names, addresses or networks that are allowed beside the public ones */
export function createDownloader(allowPrivate: readonly string[]): Downloader {
  const allowed = new AllowedAddresses(allowPrivate);
  const agent = createOutboundAgent(undici, { connect: { lookup: allowed.lookup, timeout: CONNECT_TIMEOUT_MS } });
  return {
    async download(start, budget, signal) {
      let url = start;
      for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
        if (!/^https?:$/.test(url.protocol)) throw new Error("only http and https URLs are downloaded");
        if (!allowed.allowsHost(url.hostname)) throw new Error(`${url.hostname} is a private address`);
        if (hasProxy()) await allowed.checkName(url.hostname);
        const { statusCode, headers, body } = await undici.request(url, { dispatcher: agent, signal });
        const { location, "content-type": type } = headers;
        if (statusCode >= 300 && statusCode < 400 && typeof location === "string") {
          leave(body);
          if (!URL.canParse(location, url.href)) throw new Error("it redirects to no valid URL");
          url = new URL(location, url);
          continue;
        }
        if (statusCode !== 200) {
          leave(body);
          throw new Error(`the server answers ${statusCode}`);
        }
        const mediaType = typeof type === "string" ? type.split(";", 1)[0]!.trim().toLowerCase() : undefined;
        return { data: await readAll(body, budget), mediaType };
      }
      throw new Error(`it redirects more than ${MAX_REDIRECTS} times`);
    },
    close: () => agent.destroy(),
  };
}

/** Closes the connection. The abandoned body emits an error event, which would end the process without a listener. */
function leave(body: Readable): void {
  body.on("error", () => undefined);
  body.destroy();
}

async function readAll(body: Readable, budget: { bytes: number }): Promise<Uint8Array> {
  const chunks: Buffer[] = [];
  for await (const chunk of body as AsyncIterable<Buffer>) {
    budget.bytes -= chunk.length;
    if (budget.bytes < 0) {
      leave(body);
      throw new Error("the files of the prompt are larger than server.downloads.max");
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
