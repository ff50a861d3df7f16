/** The default lists of public, protected and console routes, for the core and for plugins. */

/** Routes that describe the service: management, documentation and discovery. */
const DESCRIPTIVE_ROUTES = [
  "GET /agents",
  "GET /agents/:id",
  "GET /workflows",
  "GET /workflows/:id",
  "GET /tools",
  "GET /agents/:id/history",
  "GET /workflows/executions",
  "GET /workflows/:id/executions/:executionId/state",
  "GET /",
  "GET /doc",
  "GET /docs",
  "GET /ui",
  "GET /agents/:id/card",
  "GET /.well-known/*",
  "GET /a2a/:id/.well-known/agent-card.json",
  "GET /mcp/servers",
  "GET /mcp/servers/:serverId",
  "GET /mcp/servers/:serverId/tools",
  "GET /mcp/servers/:serverId/prompts",
  "GET /mcp/servers/:serverId/resources",
  "GET /mcp/servers/:serverId/resource-templates",
];
const CONSOLE_SOCKETS = ["WS /ws", "WS /ws/logs"];

/** Routes for observability and updates: protected under `legacy`, where both a token and the console key give access. */
export const OPERATOR_ROUTES: readonly string[] = Object.freeze([
  "/observability/*",
  "GET /api/logs",
  "GET /metrics",
  "POST /setup-observability",
  "GET /updates",
  "POST /updates",
  "POST /updates/:packageName",
  "POST /reload",
  "WS /ws/observability/**",
]);

/** Routes that need the console key under `authNext`, unless `consoleRoutes` is set. */
export const DEFAULT_CONSOLE_ROUTES: readonly string[] = Object.freeze([
  ...DESCRIPTIVE_ROUTES,
  ...OPERATOR_ROUTES,
  ...CONSOLE_SOCKETS,
]);

/** Routes that are always public under `legacy`. */
export const DEFAULT_PUBLIC_ROUTES: readonly string[] = Object.freeze([...DESCRIPTIVE_ROUTES, ...CONSOLE_SOCKETS]);

/** Routes that are protected under `legacy`. Suspending and resuming a workflow are not among them: `legacy` leaves both open. */
export const PROTECTED_ROUTES: readonly string[] = Object.freeze([
  "POST /agents/:id/text",
  "POST /agents/:id/stream",
  "POST /agents/:id/chat",
  "POST /agents/:id/object",
  "POST /agents/:id/stream-object",
  "GET /agents/:id/runs",
  "GET /agents/:id/runs/:runId",
  "GET /agents/:id/runs/:runId/stream",
  "POST /agents/:id/runs/:runId/cancel",
  "/agents/:id/ag-ui",
  "GET /agents/:id/chat/:conversationId/stream",
  "POST /agents/:id/chat/:conversationId/cancel",
  "POST /workflows/:id/execute",
  "POST /workflows/:id/stream",
  "GET /workflows/:id/executions/:executionId/stream",
  "POST /workflows/:id/executions/:executionId/replay",
  "POST /workflows/:id/executions/:executionId/cancel",
  "POST /tools/:name/execute",
  "GET /approvals",
  "POST /approvals/:approvalId",
  "/api/memory/*",
  "POST /mcp/servers/:serverId/tools/:toolName",
  "/mcp/:serverId/mcp",
  "POST /a2a/:id",
  "/v1/models",
  "/v1/models/:id",
  "/v1/chat/completions",
  "/v1/embeddings",
  "/v1/responses",
  "/v1/responses/compact",
  "/v1/responses/input_tokens",
  "/v1/responses/:id",
  "/v1/responses/:id/cancel",
  "/v1/responses/:id/input_items",
  ...OPERATOR_ROUTES,
]);
