/** `/`, `/doc` and `/ui`: rows of the table. */
import { get } from "./row.ts";

const HTML = "text/html; charset=utf-8";

export const DOCS_ROUTES = [
  get("/", "docs.landing", "Landing page and console", {
    group: "docs",
    description:
      "What the service serves, with links and a command to try it. With JavaScript it is a console. A browser that is refused gets a page to sign in with, in place of JSON.",
    output: { page: HTML },
    readsClient: true,
    refusedPage: async ({ service }) => (await service.documentation()).signIn(),
    handle: async (_input, { service, client }) => (await service.documentation()).landing(service.originFor(client)),
  }),
  get("/doc", "docs.openapi", "OpenAPI 3.1 document", {
    group: "docs",
    description: "This document.",
    output: { bare: null, type: "application/json; charset=utf-8" },
    handle: async (_input, { service }) => (await service.documentation()).openapi(),
  }),
  get("/ui", "docs.explorer", "API explorer", {
    group: "docs",
    description: "An interactive page over the OpenAPI document.",
    output: { page: HTML },
    handle: async (_input, { service }) => (await service.documentation()).explorer(),
  }),
  get("/ui/:asset", "docs.asset", "Asset of the API explorer", {
    group: "docs",
    description: "Script and styles of the explorer, served from this server.",
    output: { page: "application/octet-stream" },
    handle: async (input, { service }) => (await service.documentation()).asset(input.params.asset ?? ""),
  }),
  get("/console/:asset", "docs.consoleAsset", "Asset of the console", {
    group: "docs",
    description: "Script and styles of the console at `/`, which say nothing of this service.",
    readsHeaders: ["accept-encoding"],
    output: { page: "application/octet-stream" },
    handle: async ({ params }, { service, headers }) =>
      (await service.documentation()).consoleAsset(params.asset ?? "", headers["accept-encoding"]),
  }),
];
