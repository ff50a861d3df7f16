/** The service as handlers see it, in `call.service`. */
import type { LimitState, ManifestValue, Reloaded, RouteState } from "../../generated/types.ts";
import type { A2a } from "../a2a/a2a.ts";
import { cardsOf } from "../a2a/cards.ts";
import type { Agent } from "../agents/agent.ts";
import type { Turns } from "../agents/conversation/turn-queue.ts";
import type { Documentation } from "../api/pages/documentation.ts";
import type { LogNews } from "../api/sockets/log-news.ts";
import type { Approvals } from "../approvals/approvals.ts";
import { type AccessRules, accessClass } from "../auth/classes.ts";
import { describeAccess, documentSecurity } from "../auth/document.ts";
import { baseUrl } from "../http/base-url.ts";
import type { Client } from "../http/client.ts";
import type { Feed } from "../http/feed.ts";
import type { Route, SocketRoute } from "../http/route.ts";
import { isIsolated } from "../identity/principal.ts";
import { unavailable } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { isSecretName } from "../lib/secrets.ts";
import { Serialized } from "../lib/serialized.ts";
import type { LoadedManifest } from "../manifest/load.ts";
import { formatPath, type Manifest, type Path, parsePath } from "../manifest/manifest.ts";
import { applicableBranch, definition, definitionName } from "../manifest/resolve.ts";
import type { ListChanges } from "../mcp/list-changes.ts";
import type { McpServer } from "../mcp/servers.ts";
import type { ToolDirectory } from "../mcp/tool-directory.ts";
import { type MemoryChoice, memoryChoice } from "../memory/choose.ts";
import type { Memory } from "../memory/scoped.ts";
import type { LogRing } from "../observability/log-line.ts";
import type { LimitMeters, Meters } from "../observability/metrics/meters.ts";
import type { MetricsPage } from "../observability/metrics/page.ts";
import { BLANK, withoutCredentials } from "../observability/redaction.ts";
import type { Responses } from "../openai/responses.ts";
import type { Platform } from "../platform/platform.ts";
import type { KeptRuns } from "../runs/kept-runs.ts";
import type { Store } from "../storage/store.ts";
import { describeTool } from "../tools/describe.ts";
import type { Traces } from "../traces/open.ts";
import type { Workflows } from "../workflows/scoped.ts";

/* The values of the current manifest and where each comes from, for operators of the service. Secrets are left out. */

// What the schema says about a value of the manifest: its description, and whether it is a time or a size.

type Schema = Record<string, unknown>;

type Unit = "milliseconds" | "bytes";

interface Description {
  /** Empty when the schema has no description, as for the settings of plugins. */
  text: string;
  unit?: Unit;
}

const UNITS: Record<string, Unit | undefined> = { Duration: "milliseconds", Size: "bytes" };

/** @param path of a value in the manifest */
function describeValue(manifest: Manifest, path: Path): Description {
  let schema: Schema = { $ref: "#/$defs/Manifest" };
  let value: unknown = manifest;
  for (const part of path) {
    const target = branchOf(schema, value);
    const properties = (target.properties ?? {}) as Record<string, Schema>;
    const named = Object.hasOwn(properties, part) ? properties[part] : undefined;
    const next = typeof part === "number" ? target.items : (named ?? target.additionalProperties);
    if (!isObject(next)) return { text: "" };
    schema = next as Schema;
    value = (value as Record<string, unknown> | undefined)?.[part];
  }
  const unit = UNITS[definitionName(branchOf(schema, value, false)) ?? ""];
  return { text: typeof schema.description === "string" ? schema.description : "", ...(unit && { unit }) };
}

/** The subschema that applies to a value. @param named whether references to named schemas are resolved even if they name a unit */
function branchOf(schema: Schema, value: unknown, named = true): Schema {
  const name = definitionName(schema);
  if (name !== undefined && (named || UNITS[name] === undefined)) return branchOf(definition(name), value, named);
  const branch = applicableBranch(schema, value);
  return branch === undefined ? schema : branchOf(branch, value, named);
}

/** Sections whose keys are names that the user chose, which say nothing about their values: a tool may be called `reset_password`. */
const SECTIONS = ["agents", "memory", "providers", "tools", "workflows"];
/** Names of keys of all kinds (`key`, `publicKey`, `x-api-key`), and of lists of tokens. A number under such a name is a count. */
const KEY = /(?:keys?|tokens|jwk)$/i;
/** Sections that are passed on to others unchanged: they may contain credentials under any name. */
const HANDED_ON = new Set(["headers", "query", "env", "args"]);
/** A single expression without any other text. */
const EXPRESSION = /^\{\{[^{}"']*\}\}$/;
/** Keywords that a JSON Schema has for a property, whatever the name of the property. */
const OF_PROPERTY = new Set<unknown>(["type", "title", "description", "format"]);
/** Shown in place of a value from outside the manifest. */
const OUTSIDE = "***";
/** The user information before the host of a URL. */
const USER = /:\/\/[^\s/?#]*@/g;
/** Random-looking parts of paths and queries, except dates: the URLs of webhooks contain their secret there. */
const RANDOM_PART = /(?<=[^/]\/|=)(?!\d{4}-\d\d-\d\d)(?=[\w:-]*\d)(?=[\w:-]*[A-Za-z])[\w:-]{16,}/g;
/** A shorter text may be repeated by chance. */
const MIN_REPEATED_LENGTH = 8;

/** Lists the values of a valid manifest. */
function manifestValues({ manifest, explain }: Pick<LoadedManifest, "manifest" | "explain">): ManifestValue[] {
  const { entries } = explain("");
  const isSecret = entries.map(({ keys, value }) => areInstructions(keys) || isSecretValue(keys, value));
  // A YAML anchor repeats a secret under another name.
  const repeated = new Set(
    entries.map(({ value }) => value).filter((value, index) => isSecret[index] && isLong(value)),
  );
  return entries.map(({ keys, value, source, origin }, index) => {
    const { text, unit } = describeValue(manifest!, keys);
    const shown = isSecret[index] || repeated.has(value) ? hidden(value) : withoutSecrets(value);
    return {
      path: formatPath(withoutSecretKeys(keys)),
      value: shown,
      source,
      origin,
      ...(text !== "" && { description: text }),
      ...(unit !== undefined && typeof shown === "number" && { unit }),
    };
  });
}

const isLong = (value: unknown): boolean => typeof value === "string" && value.length >= MIN_REPEATED_LENGTH;

const hidden = (value: unknown): unknown => (value === "" || value === OUTSIDE ? value : BLANK);

/** Values from the environment are masked already. Those written in the file are judged by their names and by their form. */
function isSecretValue(keys: Path, value: unknown): boolean {
  if (typeof value === "number")
    return keys.some((_, index) => isJudged(keys, index) && isSecretName(`${keys[index]}`));
  if (typeof value !== "string") return false;
  if (keys.some((_, index) => hasSecretName(keys, index))) return true;
  return keys.slice(0, -1).some((_, index) => isHandedOn(keys, index)) && !EXPRESSION.test(value);
}

const hasSecretName = (keys: Path, index: number): boolean =>
  isJudged(keys, index) && (isSecretName(`${keys[index]}`) || KEY.test(`${keys[index]}`));

const isHandedOn = (keys: Path, index: number): boolean => isJudged(keys, index) && HANDED_ON.has(`${keys[index]}`);

/** Whether a key describes its value, unlike names that the user chose. */
function isJudged(keys: Path, index: number): boolean {
  if (typeof keys[index] === "number") return false;
  if (keys[index - 1] === "properties") return !OF_PROPERTY.has(keys[index + 1]);
  return !(index === 1 && SECTIONS.includes(`${keys[0]}`)) && !(index === 2 && keys[0] === "mcp");
}

/** Blanks the keys below the name of a secret: they may be secrets themselves, such as tokens with their owners as values. */
const withoutSecretKeys = (keys: Path): Path =>
  keys.map((key, index) => (typeof key === "string" && index > 0 && hasSecretName(keys, index - 1) ? BLANK : key));

function withoutSecrets(value: unknown): unknown {
  if (typeof value !== "string") return value;
  const clean = withoutCredentials(value.replace(USER, `://${BLANK}@`));
  return clean.includes("://") ? clean.replace(RANDOM_PART, BLANK) : clean;
}

/** Whether the value is instructions, which the schema promises to show to nobody. */
const areInstructions = (keys: Path): boolean =>
  keys.length === 3 && keys[0] === "agents" && keys[2] === "instructions";

/** Patterns of paths: limits of the whole service first, then those of its parts. */
const LIMITS = [
  /^server\.limits\./,
  /^server\.downloads\.(max|timeout)$/,
  /^(history|observability)\.retention$/,
  /^observability\.size$/,
  /^logs\.buffer$/,
  // An id that is not a plain name is written in brackets.
  /^providers[.[].+\.(retries|queue|connections|timeouts\.[^.]+)$/,
  /^agents[.[].+\.(maxSteps(\.max)?|toolOutput)$/,
  /^memory[.[].+\.contextTokens$/,
  /^tools[.[].+\.(timeout|expires)$/,
  /^workflows[.[].+\.recoveries$/,
];

/** The limits of the manifest, and how each is used. Values are numbers, so one that comes from the environment is not a secret. */
function limitStates(manifest: Manifest, values: readonly ManifestValue[], meters: LimitMeters): LimitState[] {
  return LIMITS.flatMap((pattern) => values.filter(({ path }) => pattern.test(path))).flatMap((entry) => {
    const { path, source, origin, description, unit } = entry;
    const value = (parsePath(path) ?? []).reduce(memberOf, manifest);
    if (typeof value !== "number") return [];
    const used = meters.used(path);
    const refused = meters.refused(path);
    return [
      {
        path,
        value,
        source,
        origin,
        ...(description !== undefined && { description }),
        ...(unit !== undefined && { unit }),
        ...(used !== undefined && { used }),
        ...(refused !== undefined && { refused }),
      },
    ];
  });
}

const memberOf = (node: unknown, key: string | number): unknown => (node as Record<string | number, unknown>)?.[key];

export function routeStates({
  routes,
  sockets,
  access,
  meters,
}: Pick<Service, "routes" | "sockets" | "access" | "meters">): RouteState[] {
  const rows = [
    ...routes.map(({ method, path, group, operation, summary }) => ({ method, path, group, operation, summary })),
    ...sockets.map(({ path, group, operation, summary }) => ({ method: "WS", path, group, operation, summary })),
  ];
  return rows.sort(byPath).map(({ method, path, group, operation, summary }) => {
    const { statuses } = meters.ofRoute({ method, path, operation });
    const requests = statuses.outcomes.reduce((sum, outcome) => sum + statuses.of(outcome), 0);
    return {
      method,
      path,
      access: describeAccess(access.of({ method, path, group })),
      operation,
      summary,
      custom: group === "custom",
      requests,
      refused: statuses.of("4xx"),
      failed: statuses.of("5xx"),
    };
  });
}

const byPath = (a: { path: string; method: string }, b: { path: string; method: string }) =>
  a.path === b.path ? (a.method < b.method ? -1 : 1) : a.path < b.path ? -1 : 1;

/** What the stages of boot have made, as far as handlers see it. */
export interface ServiceParts {
  readonly manifest: Manifest;
  readonly agents: ReadonlyMap<string, Agent>;
  readonly tools: ToolDirectory;
  /** Approvals: questions to people before a tool runs. */
  readonly approvals: Approvals;
  readonly routes: readonly Route<Service>[];
  readonly sockets: readonly SocketRoute<Service>[];
  /** Which credentials a route needs. */
  readonly access: AccessRules;
  readonly store: Store;
  /** Memories by their name in the manifest. */
  readonly memories: ReadonlyMap<string, Memory>;
  /** The turns of conversations that are at work or wait. */
  readonly turns: Turns;
  readonly workflows: Workflows;
  /** The agent runs that are kept. */
  readonly runs: KeptRuns;
  /** The newest lines of the log. */
  readonly logs: LogRing;
  /** The log lines as they are written, for sockets. */
  readonly logNews: Feed<LogNews>;
  readonly platform: Platform;
  /** MCP servers by id. */
  readonly mcpServers: ReadonlyMap<string, McpServer<Service>>;
  /** Tells those who listen to an MCP server. */
  readonly mcpLists: ListChanges;
  /** Recorded traces of runs. */
  readonly traces: Traces;
  /** The tasks of agents over A2A. */
  readonly a2a: A2a;
  /** The responses of agents over OpenAI's API. */
  readonly responses: Responses;
  /** All metrics, and the page that shows them. */
  readonly meters: Meters;
  readonly metrics: MetricsPage;
}

export interface Service extends ServiceParts {
  /** Chooses the memory for a request. */
  readonly chooseMemory: MemoryChoice;
  /** Whether stored objects belong to the user of the token. */
  readonly isolated: boolean;
  /** `data` of `GET /tools`; built again only when tools of an MCP server were added, changed or removed. */
  toolList(): Serialized;
  /** `data` of `GET /agents`; built again only when the status of an agent or a tool of an MCP server has changed. */
  agentList(): Serialized;
  /** The parts of the service, for its operators. */
  readonly inventory: Inventory;
  readonly cardOf: ReturnType<typeof cardsOf>;
  /** `/`, `/doc` and `/ui`; loaded with the first request for one of them. */
  documentation(): Promise<Documentation>;
  /** Where the service listens, e.g. `http://127.0.0.1:3141`; empty until it does. */
  address: string;
  /** The address that the client uses, if the manifest names none and a trusted proxy reports it; else null. */
  originFor(client: Client): string | null;
  /**
   * Reads the manifest again and serves it from then on.
   *
   * @throws ServiceError `invalid_input` with every problem of the manifest; everything then stays as it was
   */
  reload(): Promise<Reloaded>;
  /** True once the service is stopping. */
  stopping: boolean;
}

interface Inventory {
  routes(): RouteState[];
  manifest(): readonly ManifestValue[];
  limits(): LimitState[];
}

/** The route that an agent card points to. */
const A2A = { method: "POST", path: "/a2a/:id", group: "execution" } as const;

export function createService(
  parts: ServiceParts & { readonly loaded: Pick<LoadedManifest, "manifest" | "explain"> },
): Service {
  const { manifest, agents, tools, memories, routes, sockets, access, meters } = parts;
  const everyAgent = [...agents.values()];
  let list: Serialized | null = null;
  let toolList: Serialized | null = null;
  let documentation: Promise<Documentation> | null = null;
  let values: readonly ManifestValue[] | null = null;
  const manifestInForce = () => {
    values ??= manifestValues(parts.loaded);
    return values;
  };
  for (const agent of everyAgent) {
    agent.activity.onChange(() => {
      list = null;
    });
  }
  tools.onChange(() => {
    list = null;
    toolList = null;
  });
  const service: Service = {
    ...parts,
    chooseMemory: memoryChoice(manifest, memories),
    isolated: isIsolated(manifest),
    toolList() {
      toolList ??= new Serialized(
        JSON.stringify([...tools.values()].map((tool) => describeTool(tool, agentsWithTool(tool.name, manifest)))),
      );
      return toolList;
    },
    cardOf: cardsOf({
      agents,
      tagsOf: (tool) => tools.get(tool)?.tags ?? [],
      asks: (tool) => (tools.get(tool)?.approval ?? false) !== false,
      version: manifest.version,
      pushNotifications: manifest.server.push.enabled,
      baseUrl: () => baseUrl(manifest.server.publicUrl, service.address),
      accessOf: (id) => accessClass(access.of(A2A), [encodeURIComponent(id)]),
    }),
    documentation() {
      documentation ??= import("../api/pages/documentation.ts").then(({ createDocumentation }) =>
        createDocumentation({
          manifest,
          routes,
          sockets,
          agents,
          tools,
          address: () => service.address,
          security: documentSecurity(access),
        }),
      );
      return documentation;
    },
    address: "",
    inventory: {
      routes: () => routeStates(service),
      manifest: manifestInForce,
      limits: () => limitStates(manifest, manifestInForce(), meters.limits),
    },
    originFor: ({ origin }) => (manifest.server.publicUrl === undefined ? origin : null),
    agentList() {
      list ??= new Serialized(JSON.stringify(everyAgent.map((agent) => agent.summary())));
      return list;
    },
    reload: () => Promise.reject(unavailable("this service cannot be reloaded")),
    stopping: false,
  };
  return service;
}

/** The agents that have a tool, even conditionally, in the order of the manifest. */
function agentsWithTool(tool: string, manifest: Manifest): { id: string; name: string }[] {
  return Object.entries(manifest.agents)
    .filter(([, agent]) => agent.tools.some((item) => (typeof item === "string" ? item : item.use) === tool))
    .map(([id, agent]) => ({ id, name: agent.name || id }));
}
