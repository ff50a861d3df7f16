/** The pages of one service: made at first use, kept as bytes. */
import { createHash } from "node:crypto";
import { baseUrl } from "../../http/base-url.ts";
import type { HeaderList } from "../../http/exchange.ts";
import { type DocumentInfo, type DocumentSecurity, openapiDocument } from "../../http/openapi.ts";
import type { PageReply, Route } from "../../http/route.ts";
import type { SocketRoute } from "../../http/socket.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import { createConsoleFiles } from "./console-files.ts";
import { createExplorer, explorerPolicy } from "./explorer.ts";
import { type LandingView, renderLanding } from "./landing.ts";
import { LANDING_STYLE } from "./landing-style.ts";
import { once, onceLoaded } from "./once.ts";
import { renderSignIn } from "./sign-in.ts";

export interface Documentation {
  /** @param origin the address that the client uses, if it differs from the service's own */
  landing(origin?: string | null): Promise<PageReply>;
  /** The page in place of the landing page for a browser that may not see it. */
  signIn(): Promise<PageReply>;
  openapi(): PageReply;
  explorer(): PageReply;
  /** Throws `not_found`. */
  asset(name: string): Promise<PageReply>;
  /** Throws `not_found`. */
  consoleAsset(name: string): Promise<PageReply>;
}

export interface DocumentationSource<S> {
  manifest: Pick<Manifest, "name" | "version" | "workflows"> & { server: { publicUrl?: string } };
  /** Every row of the table, including those of these pages. */
  routes: readonly Route<S>[];
  sockets: readonly SocketRoute<S>[];
  agents: ReadonlyMap<string, { summary(): LandingView["agents"][number] }>;
  tools: ReadonlyMap<string, LandingView["tools"][number]>;
  /** Where the service listens (`http://127.0.0.1:3141`); called at the first request, when it is known. */
  address(): string;
  /** Undefined while authentication is off. */
  security?: DocumentSecurity;
}

export function createDocumentation<S>(source: DocumentationSource<S>): Documentation {
  const { manifest, routes } = source;
  const { publicUrl } = manifest.server;
  const explorer = createExplorer();
  const files = createConsoleFiles();
  const info: DocumentInfo = {
    title: manifest.name,
    version: manifest.version,
    publicUrl,
    security: source.security,
    sockets: source.sockets as readonly SocketRoute<never>[],
    samples: {
      "agents/id": first(source.agents),
      "tools/name": first(source.tools),
      "workflows/id": Object.keys(manifest.workflows)[0],
    },
  };
  const landing = async (origin: string | null) =>
    webPage(renderLanding(landingView(source, origin), await files.listing()), landingPolicy());
  const ownLanding = onceLoaded(() => landing(null));
  return {
    // The page for another address is not cached, because the requester may choose that address.
    landing: (origin = null) => (origin === null ? ownLanding() : landing(origin)),
    signIn: onceLoaded(async () => webPage(renderSignIn(await files.listing()), landingPolicy())),
    openapi: once(() => ({ body: Buffer.from(JSON.stringify(openapiDocument(routes, info))) })),
    explorer: once(() => webPage(explorer.page(manifest.name), explorerPolicy(publicUrl))),
    asset: (name) => explorer.asset(name),
    consoleAsset: (name) => files.asset(name),
  };
}

const first = (map: ReadonlyMap<string, unknown>): string | undefined => map.keys().next().value;

function landingView<S>(source: DocumentationSource<S>, origin: string | null): LandingView {
  const { manifest, agents, tools, address, security } = source;
  return {
    name: manifest.name,
    version: manifest.version,
    baseUrl: origin ?? baseUrl(manifest.server.publicUrl, address()),
    secured: security !== undefined,
    agents: [...agents.values()].map((agent) => agent.summary()),
    tools: [...tools.values()],
    workflows: Object.entries(manifest.workflows).map(([id, { name, purpose }]) => ({ id, name: name || id, purpose })),
  };
}

/** Scripts are loaded from this server and call no other; they cannot turn text into markup, whatever a service contains. */
function landingPolicy(): string {
  const hash = createHash("sha256").update(LANDING_STYLE).digest("base64");
  return [
    "default-src 'none'",
    "script-src 'self'",
    `style-src 'self' 'sha256-${hash}'`,
    "img-src data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; ");
}

function webPage(text: string, policy: string): PageReply {
  const headers: HeaderList = [
    "cache-control",
    "no-cache",
    "content-security-policy",
    policy,
    "referrer-policy",
    "no-referrer",
    "x-content-type-options",
    "nosniff",
  ];
  return { body: Buffer.from(text), headers };
}
