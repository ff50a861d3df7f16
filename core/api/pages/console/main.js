/** The console: turns the page that the server sent into one with many views. */
import { agentView } from "./agent.js";
import { agentsView } from "./agents.js";
import { Api, serviceRoot } from "./api.js";
import { Credentials } from "./credentials.js";
import { openCredentialsForm, signIn } from "./credentials-form.js";
import { executionView } from "./execution.js";
import { executionsView } from "./executions.js";
import { inboxView } from "./inbox.js";
import { limitsView } from "./limits.js";
import { keepAsking } from "./live.js";
import { logsView } from "./logs.js";
import { manifestView } from "./manifest-values.js";
import { conversationView, memoryView } from "./memory.js";
import { modelsView } from "./models.js";
import { keepMoments } from "./moments.js";
import { overviewView } from "./overview.js";
import { startRouter } from "./router.js";
import { routesView } from "./routes.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";
import { serviceView } from "./service-views.js";
import { buildShell } from "./shell.js";
import { toolView } from "./tool.js";
import { toolsView } from "./tools.js";
import { traceView } from "./trace.js";
import { tracesView } from "./traces.js";
import { someWaiting } from "./waiting.js";
import { workflowView } from "./workflow.js";
import { workflowsView } from "./workflows.js";

/** @import { Route } from "./router.js" */

/** How often it is asked how many questions wait, in milliseconds. */
const PAUSE = 10_000;
/** Of the executions that wait, elsewhere than in the inbox. */
const MOST_COUNTED = 20;

/** @type {Route[]} */
const ROUTES = [
  { path: "", title: "Overview", view: overviewView },
  { path: "inbox", title: "Inbox", view: inboxView },
  { path: "agents", title: "Agents", view: agentsView },
  { path: "agents/:id", title: "Agent", view: agentView },
  { path: "tools", title: "Tools", view: toolsView },
  { path: "tools/:name", title: "Tool", view: toolView },
  { path: "workflows", title: "Workflows", view: workflowsView },
  { path: "workflows/:id", title: "Workflow", view: workflowView },
  { path: "workflows/:id/executions/:executionId", title: "Execution", view: executionView },
  { path: "executions", title: "Executions", view: executionsView },
  { path: "runs/:id/:runId", title: "Run", view: runView },
  { path: "runs", title: "Runs", view: runsView },
  { path: "memory", title: "Memory", view: memoryView },
  { path: "memory/:agentId/:conversationId", title: "Conversation", view: conversationView },
  { path: "traces", title: "Traces", view: tracesView },
  { path: "traces/:id", title: "Trace", view: traceView },
  { path: "logs", title: "Logs", view: logsView },
  { path: "service", title: "Service", view: serviceView },
  { path: "service/limits", title: "Limits", view: limitsView },
  { path: "service/models", title: "Models", view: modelsView },
  { path: "service/manifest", title: "Manifest", view: manifestView },
  { path: "service/routes", title: "Routes", view: routesView },
];

const credentials = new Credentials(serviceRoot());
credentials.takeFromAddress();
const api = new Api(credentials);
const asked = document.getElementById("sign-in");
if (asked === null) begin(document.title);
else {
  const name = await signIn(credentials, asked, () => api.serviceName());
  asked.remove();
  document.title = name;
  begin(name);
}

/** @param {string} serviceName */
function begin(serviceName) {
  const shell = buildShell({ openCredentials: () => openCredentialsForm(credentials, changed) });
  const showAgain = startRouter(ROUTES, { ...shell, api, serviceName });
  let counting = new AbortController();

  function changed() {
    showAgain();
    countQuestions();
  }

  /** Shows in the bar how many questions wait, as far as the credentials let it ask. */
  function countQuestions() {
    counting.abort();
    counting = new AbortController();
    const { signal } = counting;
    const ask = async () => {
      // The overview and the inbox ask by themselves.
      if (/^(#\/?)?$|^#\/inbox/.test(location.hash)) return;
      const { count, isMore } = await someWaiting(api, signal, MOST_COUNTED);
      shell.count("inbox", count, isMore);
    };
    void keepAsking({ signal }, PAUSE, ask, document.createElement("div"));
  }

  keepMoments();
  countQuestions();
}
