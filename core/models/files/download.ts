/** Downloads one file that a client has named by URL, within bounds. */
import type { AllowedAddresses } from "../../outbound/allowed-addresses.ts";
import { decoded, leave, readBytes } from "../../outbound/body.ts";
import { askAgain } from "../../outbound/closed.ts";
import { GuardedClient } from "../../outbound/guarded-client.ts";

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

export function createDownloader(allowed: AllowedAddresses): Downloader {
  const client = new GuardedClient(() => allowed);
  return {
    async download(start, budget, signal) {
      let url = start;
      for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
        if (!/^https?:$/.test(url.protocol)) throw new Error("only http and https URLs are downloaded");
        const { statusCode, headers, body } = await askAgain(() => client.request(url, { signal }));
        const { location, "content-type": type, "content-encoding": encoding } = headers;
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
        return {
          data: await readBytes(
            decoded(body, encoding),
            budget,
            () => new Error("the files of the prompt are larger than server.downloads.max"),
          ),
          mediaType,
        };
      }
      throw new Error(`it redirects more than ${MAX_REDIRECTS} times`);
    },
    close: client.close,
  };
}
