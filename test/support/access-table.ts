/**
 * Contract, "Authentication", as tables: what each endpoint asks for and what each credential is good for. Written down
 * from the contract's text alone: nothing here knows the lists, patterns or classes of the service.
 */

/** `custom` is public, or needs a token under `defaultPrivate`. */
export type Needs = "public" | "user" | "console" | "either" | "custom";

export interface Endpoint {
  readonly method: string;
  readonly path: string;
  readonly authNext: Needs;
  readonly legacy: Needs;
  /** Whether it was in a group below, and not one that no list of the contract names. */
  readonly listed: boolean;
}

interface Group {
  readonly authNext: Needs;
  readonly legacy: Needs;
  readonly endpoints: readonly string[];
}

/** "Default access by group". Those of a later version are here too: until then no route answers them. */
const GROUPS: readonly Group[] = [
  {
    authNext: "console",
    legacy: "public",
    endpoints: [
      "GET /agents",
      "GET /agents/:id",
      "GET /agents/:id/history",
      "GET /workflows",
      "GET /workflows/:id",
      "GET /workflows/executions",
      "GET /workflows/:id/executions/:executionId/state",
      "GET /tools",
      "GET /",
      "GET /doc",
      "GET /docs",
      "GET /ui",
      "GET /agents/:id/card",
      "GET /.well-known/agent-card.json",
      "GET /.well-known/:id/agent-card.json",
      "GET /a2a/:id/.well-known/agent-card.json",
      "GET /mcp/servers",
      "GET /mcp/servers/:serverId",
      "GET /mcp/servers/:serverId/tools",
      "GET /mcp/servers/:serverId/prompts",
      "GET /mcp/servers/:serverId/resources",
      "GET /mcp/servers/:serverId/resource-templates",
    ],
  },
  {
    authNext: "user",
    legacy: "user",
    endpoints: [
      "POST /agents/:id/text",
      "POST /agents/:id/stream",
      "POST /agents/:id/chat",
      "POST /agents/:id/object",
      "POST /agents/:id/stream-object",
      "POST /agents/:id/ag-ui",
      "GET /agents/:id/ag-ui",
      "GET /agents/:id/chat/:conversationId/stream",
      "POST /agents/:id/chat/:conversationId/cancel",
      "POST /workflows/:id/execute",
      "POST /workflows/:id/stream",
      "GET /workflows/:id/executions/:executionId/stream",
      "POST /workflows/:id/executions/:executionId/replay",
      "POST /workflows/:id/executions/:executionId/cancel",
      "POST /tools/:name/execute",
      "POST /mcp/servers/:serverId/tools/:toolName",
      "POST /mcp/:serverId/mcp",
      "GET /mcp/:serverId/mcp",
      "DELETE /mcp/:serverId/mcp",
      "POST /a2a/:id",
      "GET /api/memory/conversations",
      "POST /api/memory/conversations",
      "GET /api/memory/conversations/:conversationId",
      "PATCH /api/memory/conversations/:conversationId",
      "DELETE /api/memory/conversations/:conversationId",
      "POST /api/memory/conversations/:conversationId/clone",
      "GET /api/memory/conversations/:conversationId/messages",
      "POST /api/memory/save-messages",
      "POST /api/memory/messages/delete",
      "GET /api/memory/conversations/:conversationId/working-memory",
      "POST /api/memory/conversations/:conversationId/working-memory",
      "GET /api/memory/search",
      "GET /v1/models",
      "GET /v1/models/:id",
      "POST /v1/chat/completions",
      "POST /v1/embeddings",
      "POST /v1/responses",
      "POST /v1/responses/compact",
      "POST /v1/responses/input_tokens",
      "GET /v1/responses/:id",
      "DELETE /v1/responses/:id",
      "POST /v1/responses/:id/cancel",
      "GET /v1/responses/:id/input_items",
    ],
  },
  {
    authNext: "user",
    legacy: "public",
    endpoints: [
      "POST /workflows/:id/executions/:executionId/suspend",
      "POST /workflows/:id/executions/:executionId/resume",
    ],
  },
  {
    authNext: "console",
    legacy: "either",
    endpoints: [
      "GET /observability/status",
      "GET /observability/traces",
      "GET /observability/traces/:traceId",
      "GET /observability/spans/:spanId",
      "GET /observability/traces/:traceId/logs",
      "GET /observability/spans/:spanId/logs",
      "GET /observability/logs",
      "GET /observability/routes",
      "GET /observability/limits",
      "GET /observability/memory/users",
      "GET /observability/memory/conversations",
      "GET /observability/memory/conversations/:conversationId/messages",
      "GET /observability/memory/working-memory",
      "GET /api/logs",
      "GET /metrics",
      "POST /setup-observability",
      "GET /updates",
      "POST /updates",
      "POST /updates/:packageName",
      "POST /reload",
    ],
  },
  {
    authNext: "console",
    legacy: "console",
    endpoints: ["GET /observability/manifest", "POST /observability/commands"],
  },
  {
    authNext: "either",
    legacy: "either",
    endpoints: [
      "GET /approvals",
      "POST /approvals/:approvalId",
      "GET /agents/:id/runs",
      "GET /agents/:id/runs/:runId",
      "GET /agents/:id/runs/:runId/stream",
      "POST /agents/:id/runs/:runId/cancel",
    ],
  },
  {
    authNext: "public",
    legacy: "public",
    endpoints: [
      "GET /healthz",
      "GET /readyz",
      "GET /ui/:asset",
      "GET /console/:asset",
      "GET /docs/:asset",
      "GET /.well-known/jwks.json",
    ],
  },
];

/** Custom routes of the tests, by what their path says of them. */
const CUSTOM: readonly Group[] = [
  {
    authNext: "user",
    legacy: "custom",
    endpoints: ["GET /custom", "POST /custom/:id", "GET /agents/:id/secret", "GET /ui/:asset/source"],
  },
  { authNext: "console", legacy: "either", endpoints: ["GET /observability/mine", "PUT /observability/:kind/mine"] },
  { authNext: "user", legacy: "user", endpoints: ["DELETE /api/memory/everything"] },
];

/** What no route answers, or not with this method, is asked for what a custom route there would be. */
const UNKNOWN: readonly Group[] = [
  {
    authNext: "user",
    legacy: "custom",
    endpoints: [
      "GET /nowhere",
      "POST /nowhere/at/all",
      "PUT /agents",
      "DELETE /agents/:id",
      "PATCH /tools/:name/execute",
      "GET /agents/:id/text",
      "GET /observability",
      "GET /api/memory",
      "GET /updates/:packageName",
      "POST /healthz",
      "POST /ui",
    ],
  },
  { authNext: "console", legacy: "either", endpoints: ["DELETE /observability/traces", "GET /observability/a/b/c/d"] },
  { authNext: "user", legacy: "user", endpoints: ["PUT /api/memory/search", "GET /api/memory/a/b/c"] },
  { authNext: "console", legacy: "public", endpoints: ["GET /.well-known/openid-configuration"] },
];

const endpointsOf = (groups: readonly Group[], listed: boolean): Endpoint[] =>
  groups.flatMap(({ authNext, legacy, endpoints }) =>
    endpoints.map((text) => {
      const [method, path] = text.split(" ") as [string, string];
      return { method, path, authNext, legacy, listed };
    }),
  );

export const CONTRACT: readonly Endpoint[] = endpointsOf(GROUPS, true);
export const CUSTOM_ROUTES: readonly Endpoint[] = endpointsOf(CUSTOM, false);
export const UNANSWERED: readonly Endpoint[] = endpointsOf(UNKNOWN, false);

/** As what a credential lets in, where that is asked for. */
export type Worth = "nothing" | "user" | "console" | "both" | "development";

export interface Mode {
  readonly mode: "none" | "authNext" | "legacy";
  readonly production: boolean;
  readonly defaultPrivate?: boolean;
}

export function needsOf(
  { authNext, legacy }: Endpoint,
  { mode, defaultPrivate = false }: Mode,
): Exclude<Needs, "custom"> {
  if (mode === "none") return "public";
  const needs = mode === "authNext" ? authNext : legacy;
  if (needs !== "custom") return needs;
  return defaultPrivate ? "user" : "public";
}

export function opens(worth: Worth, needs: Exclude<Needs, "custom">, { production }: Mode): boolean {
  if (needs === "public") return true;
  if (worth === "development") return !production;
  if (worth === "both") return true;
  return worth !== "nothing" && (needs === "either" || needs === worth);
}
