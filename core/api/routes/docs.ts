/** `/`, `/doc` and `/ui`: rows of the table. */
import type { Client } from "../../http/client.ts";
import { type Route, typedRoute } from "../../http/route.ts";
import type { Documentation } from "../pages/documentation.ts";

/** The part of a service that these rows need. */
interface DocsService {
  /** Loaded with the first request for a page: most services that start serve none. */
  documentation(): Promise<Documentation>;
  originFor(client: Client): string | null;
}

const HTML = "text/html; charset=utf-8";

export const DOCS_ROUTES: readonly Route<DocsService>[] = [
  typedRoute({
    operation: "docs.landing",
    method: "GET",
    path: "/",
    group: "docs",
    summary: "Landing page and console",
    description:
      "What the service serves, with links and a command to try it. With JavaScript it is a console. A browser that is refused gets a page to sign in with, in place of JSON.",
    output: { page: HTML },
    readsClient: true,
    refusedPage: async ({ service }) => (await service.documentation()).signIn(),
    handle: async (_input, { service, client }) => (await service.documentation()).landing(service.originFor(client)),
  }),
  typedRoute({
    operation: "docs.openapi",
    method: "GET",
    path: "/doc",
    group: "docs",
    summary: "OpenAPI 3.1 document",
    description: "This document.",
    output: { bare: null, type: "application/json; charset=utf-8" },
    handle: async (_input, { service }) => (await service.documentation()).openapi(),
  }),
  typedRoute({
    operation: "docs.explorer",
    method: "GET",
    path: "/ui",
    group: "docs",
    summary: "API explorer",
    description: "An interactive page over the OpenAPI document.",
    output: { page: HTML },
    handle: async (_input, { service }) => (await service.documentation()).explorer(),
  }),
  typedRoute({
    operation: "docs.asset",
    method: "GET",
    path: "/ui/:asset",
    group: "docs",
    summary: "Asset of the API explorer",
    description: "Script and styles of the explorer, served from this server.",
    output: { page: "application/octet-stream" },
    handle: async (input, { service }) => (await service.documentation()).asset(input.params.asset ?? ""),
  }),
  typedRoute({
    operation: "docs.consoleAsset",
    method: "GET",
    path: "/console/:asset",
    group: "docs",
    summary: "Asset of the console",
    description: "Scripts and styles of the console at `/`, which say nothing of this service.",
    output: { page: "application/octet-stream" },
    handle: async (input, { service }) => (await service.documentation()).consoleAsset(input.params.asset ?? ""),
  }),
];
