/** The pages of one service: made at first use, kept as bytes. */
import { createHash } from "node:crypto";
import type { HeaderList } from "../../http/exchange.ts";
import { type DocumentInfo, openapiDocument } from "../../http/openapi.ts";
import type { Page, Route } from "../../http/route.ts";
import { createExplorer, EXPLORER_POLICY } from "./explorer.ts";
import { type LandingView, renderLanding } from "./landing.ts";
import { LANDING_STYLE } from "./landing-style.ts";

export interface Documentation {
  landing(): Page;
  openapi(): Page;
  explorer(): Page;
  /** Throws `not_found`. */
  asset(name: string): Promise<Page>;
}

export interface DocumentationSource<S> {
  info: DocumentInfo;
  /** Every row of the table, these ones included. */
  routes: readonly Route<S>[];
  /** Called at the first request for the page, when the address is known. */
  view(): LandingView;
}

export function createDocumentation<S>(source: DocumentationSource<S>): Documentation {
  const explorer = createExplorer();
  return {
    landing: once(() => webPage(renderLanding(source.view()), landingPolicy())),
    openapi: once(() => ({ body: Buffer.from(JSON.stringify(openapiDocument(source.routes, source.info))) })),
    explorer: once(() => webPage(explorer.page(source.info.title), EXPLORER_POLICY)),
    asset: (name) => explorer.asset(name),
  };
}

function once<T>(make: () => T): () => T {
  let made: { value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

/** The page has one style and no script: nothing that a manifest says can run. */
function landingPolicy(): string {
  const hash = createHash("sha256").update(LANDING_STYLE).digest("base64");
  return `default-src 'none'; style-src 'sha256-${hash}'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;
}

function webPage(text: string, policy: string): Page {
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
