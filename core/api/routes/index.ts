/** The routes table: all endpoints in one list. Routing, validation, `/doc`, CORS methods and table tests derive from it. */

import type { Service } from "../../app/service.ts";
import type { Route } from "../../http/route.ts";
import { A2A_ROUTES } from "./a2a.ts";
import { AG_UI_ROUTES } from "./ag-ui.ts";
import { AGENT_ROUTES, RUN_ROUTES } from "./agents.ts";
import { DOCS_ROUTES } from "./docs.ts";
import { MCP_ROUTES } from "./mcp.ts";
import { MEMORY_ROUTES } from "./memory.ts";
import { OBSERVABILITY_LOG_ROUTES, OBSERVABILITY_ROUTES } from "./observability.ts";
import { OPENAI_ROUTES } from "./openai.ts";
import { PLATFORM_ROUTES } from "./platform.ts";
import { APPROVAL_ROUTES, TOOL_ROUTES } from "./tools.ts";
import { UPDATE_ROUTES } from "./updates.ts";
import { WORKFLOW_ROUTES } from "./workflows.ts";

export const ROUTES: readonly Route<Service>[] = [
  ...DOCS_ROUTES,
  ...AGENT_ROUTES,
  ...RUN_ROUTES,
  ...AG_UI_ROUTES,
  ...WORKFLOW_ROUTES,
  ...TOOL_ROUTES,
  ...APPROVAL_ROUTES,
  ...MEMORY_ROUTES,
  ...A2A_ROUTES,
  ...OPENAI_ROUTES,
  ...OBSERVABILITY_LOG_ROUTES,
  ...MCP_ROUTES,
  ...OBSERVABILITY_ROUTES,
  ...UPDATE_ROUTES,
  ...PLATFORM_ROUTES,
];
