/** The pages of one service: made at first use, kept as bytes. */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { baseUrl } from "../../http/base-url.ts";
import type { HeaderList } from "../../http/exchange.ts";
import { type DocumentInfo, type DocumentSecurity, openapiDocument } from "../../http/openapi.ts";
import type { PageReply, Route, SocketRoute } from "../../http/route.ts";
import { notFound } from "../../lib/errors.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import { type KeptFiles, keepFiles, loadConsole } from "./console-files.ts";
import { type Html, html, trusted } from "./html.ts";
import { consoleLinks, type LandingView, renderLanding } from "./landing.ts";
import { ICON, LANDING_STYLE } from "./landing-style.ts";
import { loadManual } from "./manual.ts";
import { once, onceLoaded } from "./once.ts";

// `GET /ui`: the API explorer. Its script and styles are served from the installed swagger-ui-dist.

/**
 * Sends a key in the address of the page with calls to the server that the page came from. Puts the relative server
 * first, so that a trial call goes to that server.
 */
const START = `"use strict";
const key = new URLSearchParams(location.search).get("key");
document.documentElement.classList.toggle("dark-mode", matchMedia("(prefers-color-scheme: dark)").matches);
const address = new URL("doc", location.href).href;
SwaggerUIBundle({
  url: address,
  dom_id: "#explorer",
  deepLinking: true,
  validatorUrl: null,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
  requestInterceptor(request) {
    if (key !== null && new URL(request.url, location.href).origin === location.origin)
      request.headers["x-console-access-key"] ??= key;
    return request;
  },
  responseInterceptor(response) {
    if (response.url !== address || !response.ok) return response;
    const description = JSON.parse(response.text);
    description.servers.sort((a, b) => (a.url === "." ? 0 : 1) - (b.url === "." ? 0 : 1));
    response.text = JSON.stringify(description);
    return response;
  },
});
`;

const STYLE = `body { margin: 0; }
html.dark-mode body { background: #1c2022; }
.swagger-ui .info { margin: 2rem 0; }
`;

/** Only scripts from this server run; calls go to this server and to the public address that the document names. */
function explorerPolicy(publicUrl: string | undefined): string {
  const calls = publicUrl === undefined ? "'self'" : `'self' ${new URL(publicUrl).origin}`;
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "font-src 'self' data:",
    `connect-src ${calls}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; ");
}

/** The folder of swagger-ui-dist; a build has its own copy. */
function swaggerFolder(): string {
  const copy = fileURLToPath(new URL("./swagger/", import.meta.url));
  return existsSync(copy) ? copy : dirname(createRequire(import.meta.url).resolve("swagger-ui-dist/package.json"));
}

async function loadExplorer(): Promise<KeptFiles> {
  const read = async (name: string) => [name, await readFile(join(swaggerFolder(), name), "utf8")] as const;
  const swagger = await Promise.all(["swagger-ui-bundle.js", "swagger-ui.css"].map(read));
  return keepFiles({ ...Object.fromEntries(swagger), "explorer.js": START, "explorer.css": STYLE });
}

function renderExplorer(title: string, version: string): string {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}: API explorer</title>
<link rel="icon" href="${trusted(ICON)}">
<link rel="stylesheet" href="./ui/swagger-ui.css?v=${version}">
<link rel="stylesheet" href="./ui/explorer.css?v=${version}">
</head>
<body>
<div id="explorer"></div>
<noscript>The explorer needs JavaScript. The document it shows is <a href="./doc">here</a>.</noscript>
<script src="./ui/swagger-ui-bundle.js?v=${version}"></script>
<script src="./ui/explorer.js?v=${version}"></script>
</body>
</html>
`.text;
}

/** The files of each page, read at first use and then kept. */
const FILES = { ui: onceLoaded(loadExplorer), console: onceLoaded(loadConsole), docs: onceLoaded(loadManual) };

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

export type Documentation = ReturnType<typeof createDocumentation>;

export function createDocumentation<S>(source: DocumentationSource<S>) {
  const { manifest, routes } = source;
  const { publicUrl } = manifest.server;
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
    webPage(renderLanding(landingView(source, origin), (await FILES.console()).version), landingPolicy());
  const ownLanding = onceLoaded(() => landing(null));
  return {
    /**
     * The page for another address is not cached, because the requester may choose that address.
     *
     * @param origin the address that the client uses, if it differs from the service's own
     */
    landing: (origin: string | null = null) => (origin === null ? ownLanding() : landing(origin)),
    /** The page in place of the landing page for a browser that may not see it. */
    signIn: consolePage(
      "Sign in",
      "main.js",
      async () =>
        html`<div id="sign-in"><noscript><p>This page asks for credentials with JavaScript. Without it, open /?key=... with the console's key.</p></noscript></div>`,
    ),
    openapi: once(() => ({ body: Buffer.from(JSON.stringify(openapiDocument(routes, info))) })),
    explorer: onceLoaded(async () =>
      webPage(renderExplorer(manifest.name, (await FILES.ui()).version), explorerPolicy(publicUrl)),
    ),
    manual: consolePage(
      "Manual",
      "manual.js",
      async () =>
        html`<div id="manual" data-version="${(await FILES.docs()).version}"><noscript><p>The manual is shown with JavaScript. It is also in the folder docs of the package.</p></noscript></div>`,
    ),
    /**
     * Compressed where the `accept-encoding` of the request allows it.
     *
     * @throws ServiceError `not_found`
     */
    async asset(page: keyof typeof FILES, name: string, accepted = "") {
      const forms = (await FILES[page]()).pages.get(name);
      if (forms === undefined) throw notFound(`/${page} has no asset called "${name.slice(0, 100)}"`);
      return forms[/\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/.test(accepted) ? 1 : 0];
    },
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

/** A page for a script of the console, which reveals nothing about the service. */
const consolePage = (title: string, script: string, body: () => Promise<Html>) =>
  onceLoaded(async () => {
    const { version } = await FILES.console();
    const page = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<link rel="icon" href="${trusted(ICON)}">
<style>${trusted(LANDING_STYLE)}</style>
${consoleLinks(version, script)}
</head>
<body>
${await body()}
</body>
</html>
`;
    return webPage(page.text, landingPolicy());
  });
