/** `/`, `/doc`, `/docs` and `/ui`: rows of the table. */
import { get } from "./row.ts";

const PAGE = { group: "docs", output: { page: "text/html; charset=utf-8" } } as const;

/** A row for the files of a page, which say nothing of the service. */
const assets = (page: "ui" | "docs" | "console", operation: string, of: string, description: string) =>
  get(`/${page}/:asset`, operation, `Asset of ${of}`, {
    group: "docs",
    description,
    readsHeaders: ["accept-encoding"],
    output: { page: "application/octet-stream" },
    handle: async ({ params }, { service, headers }) =>
      (await service.documentation()).asset(page, params.asset ?? "", headers["accept-encoding"]),
  });

export const DOCS_ROUTES = [
  get("/", "docs.landing", "Landing page and console", {
    ...PAGE,
    description:
      "What the service serves, with links and a command to try it. With JavaScript it is a console. A browser that is refused gets a page to sign in with, in place of JSON.",
    readsHeaders: true,
    refusedPage: async ({ service }) => (await service.documentation()).signIn(),
    handle: async (_input, { service, client }) => (await service.documentation()).landing(service.originFor(client)),
  }),
  get("/doc", "docs.openapi", "OpenAPI 3.1 document", {
    group: "docs",
    description: "This document.",
    output: { bare: null, type: "application/json; charset=utf-8" },
    handle: async (_input, { service }) => (await service.documentation()).openapi(),
  }),
  get("/docs", "docs.manual", "Manual", {
    ...PAGE,
    description:
      "The manual of this version, with a search. It is the same for everybody, so that a refused browser gets it too, with 401.",
    refusedPage: async ({ service }) => (await service.documentation()).manual(),
    handle: async (_input, { service }) => (await service.documentation()).manual(),
  }),
  get("/ui", "docs.explorer", "API explorer", {
    ...PAGE,
    description: "An interactive page over the OpenAPI document.",
    handle: async (_input, { service }) => (await service.documentation()).explorer(),
  }),
  assets("ui", "docs.asset", "the API explorer", "Script and styles of the explorer."),
  assets("docs", "docs.manualAsset", "the manual", "Chapters of the manual as Markdown, and the index of its search."),
  assets("console", "docs.consoleAsset", "the console", "Scripts and styles of the console at `/`."),
];
