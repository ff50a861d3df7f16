/** The console: turns the page that the server sent into one with many views. */
import { agentView } from "./agent.js";
import { agentsView } from "./agents.js";
import { Api, serviceRoot } from "./api.js";
import { Credentials } from "./credentials.js";
import { openCredentialsForm } from "./credentials-form.js";
import { executionView } from "./execution.js";
import { executionsView } from "./executions.js";
import { logsView } from "./logs.js";
import { overviewView } from "./overview.js";
import { startRouter } from "./router.js";
import { buildShell } from "./shell.js";
import { traceView } from "./trace.js";
import { tracesView } from "./traces.js";
import { workflowView } from "./workflow.js";
import { workflowsView } from "./workflows.js";

/** @import { Route } from "./router.js" */

/** @param {Credentials} credentials @returns {Route[]} */
const routesOf = (credentials) => [
  { path: "", title: "Overview", view: overviewView(credentials) },
  { path: "agents", title: "Agents", view: agentsView },
  { path: "agents/:id", title: "Agent", view: agentView },
  { path: "workflows", title: "Workflows", view: workflowsView },
  { path: "workflows/:id", title: "Workflow", view: workflowView },
  { path: "workflows/:id/executions/:executionId", title: "Execution", view: executionView },
  { path: "executions", title: "Executions", view: executionsView },
  { path: "traces", title: "Traces", view: tracesView },
  { path: "traces/:id", title: "Trace", view: traceView },
  { path: "logs", title: "Logs", view: logsView },
];

const credentials = new Credentials(serviceRoot());
credentials.takeFromAddress();
const shell = buildShell({ openCredentials: () => openCredentialsForm(credentials, () => showAgain()) });
const showAgain = startRouter(routesOf(credentials), { ...shell, api: new Api(credentials) });
