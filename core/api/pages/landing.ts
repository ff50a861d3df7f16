/** `GET /`: what this service serves, and a command that tries it out. Links are relative, so that they work behind any base path. */
import type { AgentSummary } from "../../../generated/types.ts";
import { counted } from "../../lib/counted.ts";
import { type Html, html, trusted } from "./html.ts";
import { ICON, LANDING_FIGURE, LANDING_STYLE } from "./landing-style.ts";

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
export const consoleLinks = (version: string, script = "main.js"): Html =>
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
