/** The pages of one service: made at first use, kept as bytes. */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import type { AgentSummary } from "../../../generated/types.ts";
import { baseUrl } from "../../http/base-url.ts";
import type { HeaderList } from "../../http/exchange.ts";
import { type DocumentInfo, type DocumentSecurity, openapiDocument } from "../../http/openapi.ts";
import type { PageReply, Route, SocketRoute } from "../../http/route.ts";
import { counted } from "../../lib/counted.ts";
import { notFound } from "../../lib/errors.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import { type KeptFiles, keepFiles, loadConsole } from "./console-files.ts";
import { type Html, html, trusted } from "./html.ts";
import { ICON, LANDING_FIGURE, LANDING_STYLE } from "./landing-style.ts";

/* `GET /`: what this service serves, and a command that tries it out. Links are relative, so that they work behind any base path. */

export interface LandingView {
  name: string;
  version: string;
  /** Where clients reach the service, without a slash at the end. */
  baseUrl: string;
  /** Whether calls need a token. */
  secured: boolean;
  agents: readonly Pick<AgentSummary, "id" | "name" | "description" | "model" | "tools" | "subAgents">[];
  tools: readonly { name: string; description: string; tags: readonly string[] }[];
  workflows: readonly { id: string; name: string; purpose: string }[];
}

const LINKS = [
  ["ui", "API explorer"],
  ["docs", "Manual"],
  ["doc", "OpenAPI document"],
  ["agents", "Agents"],
  ["workflows", "Workflows"],
  ["tools", "Tools"],
  ["healthz", "Health"],
] as const;

/** Style and script of the console, for the head of a page. */
const consoleLinks = (version: string, script = "main.js"): Html =>
  html`<link rel="stylesheet" href="./console/main.css?v=${version}">
<script type="module" src="./console/${script}?v=${version}"></script>`;

export function renderLanding(view: LandingView, consoleVersion: string): string {
  const links = LINKS.map(([href, label], index) =>
    index === 0 ? html`<a class="main" href="./${href}">${label}</a>` : html`<a href="./${href}">${label}</a>`,
  );
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${view.name}</title>
<link rel="icon" href="${trusted(ICON)}">
<style>${trusted(LANDING_STYLE)}</style>
${consoleLinks(consoleVersion)}
</head>
<body>
<div id="landing">
<main>
<div class="hero">${trusted(LANDING_FIGURE)}<div>
<p class="version">version ${view.version}</p>
<h1>${view.name}</h1>
<p class="lead">${served(view)}, at <code>${view.baseUrl}</code>.</p>
<nav aria-label="Service">${links}</nav>
</div></div>
<div class="content">
${tryIt(view)}
${section("Agents", view.agents.length, html`<div class="cards">${view.agents.map(agentCard)}</div>`)}
${section("Tools", view.tools.length, html`<ul class="rows">${view.tools.map(toolRow)}</ul>`)}
${section("Workflows", view.workflows.length, html`<ul class="rows">${view.workflows.map(workflowRow)}</ul>`)}
</div>
</main>
<footer>Served by Penstock from one manifest.</footer>
</div>
</body>
</html>
`.text;
}

/** `3 agents, 4 tools and 1 workflow`; kinds with a count of 0 are left out. */
function served({ agents, tools, workflows }: LandingView): string {
  const kinds: [count: number, plural: string][] = [
    [agents.length, "agents"],
    [tools.length, "tools"],
    [workflows.length, "workflows"],
  ];
  const parts = kinds.filter(([count]) => count > 0).map(([count, plural]) => counted(count, plural));
  if (parts.length === 0) return "No agents, tools and workflows yet";
  return parts.join(", ").replace(/, (?=[^,]*$)/, " and ");
}

function section(title: string, count: number, content: Html): Html | null {
  return count === 0 ? null : html`<section><h2>${title} <span>${count}</span></h2>${content}</section>`;
}

function tryIt(view: LandingView): Html {
  const shells = commands(view).map(
    ({ caption, command }) => html`<div class="shell"><p>${caption}</p><pre>${command}</pre></div>`,
  );
  return html`<section><h2>Try it</h2><div class="shells">${shells}</div></section>`;
}

/** Commands for a POSIX shell that can be pasted unchanged. */
function commands(view: LandingView): { caption: string; command: string }[] {
  const token = view.secured ? ` \\\n  -H "authorization: Bearer $TOKEN"` : "";
  const [agent] = view.agents;
  if (agent === undefined) {
    return [{ caption: "Is it up?", command: `curl -s ${quote(`${view.baseUrl}/healthz`)}` }];
  }
  const url = `${view.baseUrl}/agents/${encodeURIComponent(agent.id)}`;
  const rest = ` \\\n  -H 'content-type: application/json'${token} \\\n  -d '{"input": "Hello!"}'`;
  return [
    { caption: `Ask ${agent.name}`, command: `curl -s ${quote(`${url}/text`)}${rest}` },
    { caption: "Watch the answer come", command: `curl -sN ${quote(`${url}/stream`)}${rest}` },
  ];
}

/** Quotes one word for a POSIX shell. */
const quote = (word: string) => (/^[\w:/.%@+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

const chips = (names: readonly string[]) => names.map((name) => html`<span class="chip">${name}</span>`);

function agentCard(agent: LandingView["agents"][number]): Html {
  const tools = agent.tools.map((tool) => tool.name);
  const delegates = agent.subAgents.map((subAgent) => subAgent.id);
  return html`<article class="card">
<h3><a href="./agents/${encodeURIComponent(agent.id)}">${agent.name}</a> <code class="id">${agent.id}</code></h3>
<p>${agent.description}</p>
<dl><dt>Model</dt><dd>${chips([agent.model])}</dd>
${tools.length > 0 ? html`<dt>Tools</dt><dd>${chips(tools)}</dd>` : null}
${delegates.length > 0 ? html`<dt>Delegates to</dt><dd>${chips(delegates)}</dd>` : null}</dl>
</article>`;
}

const toolRow = (tool: LandingView["tools"][number]) =>
  html`<li><code>${tool.name}</code><p>${tool.description}</p><div class="tags">${chips(tool.tags)}</div></li>`;

const workflowRow = (workflow: LandingView["workflows"][number]) =>
  html`<li><a href="./workflows/${encodeURIComponent(workflow.id)}"><code>${workflow.id}</code></a><p>${workflow.name}${workflow.purpose === "" ? "" : `: ${workflow.purpose}`}</p></li>`;

/* Values that are made at first use and then kept. */

function once<T>(make: () => T): () => T {
  let made: { value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

/** Loads at first use; after a failure, the next use tries again. */
function onceLoaded<T>(load: () => Promise<T>): () => Promise<T> {
  let loaded: Promise<T> | undefined;
  return () => {
    loaded ??= load().catch((error: unknown) => {
      loaded = undefined;
      throw error;
    });
    return loaded;
  };
}

/* `GET /docs`: the manual of this version, from `docs/`, with what a search looks at. */

const DOCS = new URL("../../../docs/", import.meta.url);
/** A comment in it is no heading. */
const CODE = /^```.*?^```$/gms;

/** The chapters, but for those about decisions, which are for who changes the source. Each is an asset: `limits.store.md` is `docs/limits/store.md`. */
async function loadManual(): Promise<KeptFiles> {
  const paths = (await readdir(DOCS, { recursive: true })).filter((path) => /^(?!decisions).*\.md$/.test(path)).sort();
  const texts = await Promise.all(paths.map((path) => readFile(new URL(path, DOCS), "utf8")));
  const names = paths.map((path) => path.replace(sep, "."));
  const index = names.map((name, at) => [
    name,
    texts[at]!.replace(CODE, (code) => code.replaceAll("\n#", "\n #"))
      .split(/^(?=#+ )/m)
      .map(wordsOf),
  ]);
  const chapters = Object.fromEntries(names.map((name, at) => [name, texts[at]!]));
  return keepFiles({ "index.js": `export const index = ${JSON.stringify(index)};`, ...chapters });
}

/** The first line, which is the heading, and every word once. */
const wordsOf = (section: string) => [
  section.split("\n", 1)[0],
  [...new Set(section.toLowerCase().match(/[\p{L}\d_]+/gu))].join(" "),
];

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
