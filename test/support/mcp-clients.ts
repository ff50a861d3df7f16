/** Real MCP clients of both generations, behind what the tests need of them. */
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Loose } from "./served-upstream.ts";

export interface TestClient {
  readonly protocol: string;
  tools(): Promise<Loose[]>;
  call(name: string, given: object, signal?: AbortSignal, onprogress?: (report: Loose) => void): Promise<Loose>;
  close(): Promise<void>;
}

/** The newest SDK with the current revision of the protocol and with the one before it, and the SDK before that. */
export const CLIENTS = ["2.4.0 current", "2.4.0 previous", "1.32.2"] as const;
type ClientName = (typeof CLIENTS)[number];

const INFO = { name: "test", version: "1.0.0" };

/** Rejects as the client does when it cannot connect. */
export async function connect(
  client: ClientName,
  address: string,
  headers: Record<string, string> = {},
): Promise<TestClient> {
  const url = new URL(address);
  const requestInit = { headers };
  if (client === "1.32.2") {
    const old = new OldClient(INFO);
    const transport = new OldTransport(url, { requestInit });
    await old.connect(transport as Parameters<OldClient["connect"]>[0]);
    return {
      protocol: transport.protocolVersion ?? "",
      tools: async () => (await old.listTools()).tools,
      call: (name, given, signal, onprogress) =>
        old.callTool({ name, arguments: { ...given } }, undefined, optionsOf(signal, onprogress)),
      close: () => old.close(),
    };
  }
  const mode = client === "2.4.0 current" ? { pin: "2026-07-28" } : ("legacy" as const);
  const current = new Client(INFO, { versionNegotiation: { mode } });
  await current.connect(new StreamableHTTPClientTransport(url, { requestInit }));
  return {
    protocol: current.getNegotiatedProtocolVersion() ?? "",
    tools: async () => (await current.listTools()).tools,
    call: (name, given, signal, onprogress) =>
      current.callTool({ name, arguments: { ...given } }, optionsOf(signal, onprogress)),
    close: () => current.close(),
  };
}

const optionsOf = (signal: AbortSignal | undefined, onprogress: ((report: Loose) => void) | undefined) => ({
  ...(signal !== undefined && { signal }),
  ...(onprogress !== undefined && { onprogress }),
});
