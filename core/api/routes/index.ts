/** The routes table: all endpoints in one list. Routing, validation, `/doc`, CORS methods and table tests derive from it. */

import type { Service } from "../../app/service.ts";
import type { Route } from "../../http/route.ts";
import { AGENT_ROUTES, RUN_ROUTES } from "./agents.ts";
import { DOCS_ROUTES } from "./docs.ts";
import { MEMORY_ROUTES } from "./memory.ts";
import { OBSERVABILITY_LOG_ROUTES, OBSERVABILITY_ROUTES } from "./observability.ts";
import { OPENAI_ROUTES } from "./openai.ts";
import { PLATFORM_ROUTES, UPDATE_ROUTES } from "./platform.ts";
import { A2A_ROUTES, AG_UI_ROUTES, MCP_ROUTES } from "./protocols.ts";
import { APPROVAL_ROUTES, TOOL_ROUTES } from "./tools.ts";
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
