/** The lists of routes that access is decided by (contract, "Authentication"), for the core and for plugins. */

/** Management, docs and discovery. */
const SHOWN = [
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
  "GET /ui",
  "GET /agents/:id/card",
  "GET /.well-known/*",
  "GET /mcp/servers",
  "GET /mcp/servers/:serverId",
  "GET /mcp/servers/:serverId/tools",
];
const SOCKETS = ["WS /ws", "WS /ws/logs"];

/** Protected under `legacy`, and opened by the console's key as well as by a token: observability and updates. */
export const OPERATOR_ROUTES: readonly string[] = Object.freeze([
  "/observability/*",
  "GET /api/logs",
  "GET /metrics",
  "POST /setup-observability",
  "GET /updates",
  "POST /updates",
  "POST /updates/:packageName",
  "WS /ws/observability/**",
]);

/** Console routes under `authNext`, unless `consoleRoutes` says otherwise. */
export const DEFAULT_CONSOLE_ROUTES: readonly string[] = Object.freeze([...SHOWN, ...OPERATOR_ROUTES, ...SOCKETS]);

/** Always public under `legacy`. */
export const DEFAULT_LEGACY_PUBLIC_ROUTES: readonly string[] = Object.freeze([...SHOWN, ...SOCKETS]);

export const DEFAULT_PUBLIC_ROUTES: readonly string[] = DEFAULT_LEGACY_PUBLIC_ROUTES;

/** Protected under `legacy`. Suspend and resume are not among them (contract, "Legacy `auth`", 5). */
export const PROTECTED_ROUTES: readonly string[] = Object.freeze([
  "POST /agents/:id/text",
  "POST /agents/:id/stream",
  "POST /agents/:id/chat",
  "POST /agents/:id/object",
  "POST /agents/:id/stream-object",
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
  ...OPERATOR_ROUTES,
]);
