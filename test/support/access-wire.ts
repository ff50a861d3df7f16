/** Requests below HTTP, byte for byte, to a service with an open door. */
import type { TestContext } from "node:test";
import { CONSOLE_KEY } from "./access-credentials.ts";
import { type Secured, startSecured } from "./access-services.ts";
import { parseReplies, RawClient, type RawReply } from "./raw-http.ts";

export const KEY = `x-console-access-key: ${CONSOLE_KEY}`;
export const tokenOf = ({ signer }: Secured): string => `authorization: Bearer ${signer.sign()}`;

/** In production; everything below `/custom/` is public unless `auth` says otherwise. */
export const opened = (
  t: TestContext,
  transport: "uws" | "node",
  mode: "authNext" | "legacy" = "authNext",
  auth: object = {},
): Promise<Secured> =>
  startSecured(t, {
    mode,
    production: true,
    provider: "secret",
    auth: { publicRoutes: ["/custom/*"], ...auth },
    transport,
  });

interface Sent {
  /** Null when there was none. */
  readonly reply: RawReply | null;
  /** Whether a handler answered, and not a refusal. */
  readonly reached: boolean;
}

/**
 * @param line request line without its version
 * @param patience milliseconds after which no reply will come; only a hang takes so long
 */
export async function send(
  { service }: Secured,
  line: string,
  headers: readonly string[] = [],
  patience = 60_000,
): Promise<Sent> {
  const client = await RawClient.open(service.port);
  const head = line.startsWith("HEAD ");
  const reply = () => parseReplies(client.received, head)[0] ?? null;
  try {
    await client.send([`${line} HTTP/1.1`, "host: x", "connection: close", ...headers, "", ""].join("\r\n"));
    await client.until(() => reply() !== null, patience).catch(() => {});
    const found = reply();
    return { reply: found, reached: found !== null && found.status < 400 };
  } finally {
    client.close();
  }
}
