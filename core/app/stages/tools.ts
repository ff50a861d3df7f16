/** Stages: approvals of calls, the tools of the manifest, the models of its providers, and all tools including those of MCP servers. */
import { Approvals } from "../../approvals/approvals.ts";
import { approvalPlace } from "../../approvals/rows.ts";
import { isIsolated } from "../../identity/principal.ts";
import { McpClients } from "../../mcp/clients.ts";
import { ToolDirectory } from "../../mcp/tool-directory.ts";
import { createModels } from "../../models/models.ts";
import { compileTools } from "../../tools/compile.ts";
import { hasStepEnded, tellAwaitingStep } from "../../workflows/approved-step.ts";
import type { Stage } from "./stage.ts";

export const approvals: Stage<"manifest" | "meters" | "options", "approvals"> = ({
  manifest,
  meters,
  options: { logger },
}) => {
  const approvals = new Approvals({
    isolated: isIsolated(manifest),
    // Getters, because a reload may change the values.
    get open() {
      return manifest.auth.mode === "none";
    },
    get retention() {
      return manifest.history.retention;
    },
    get limit() {
      return manifest.server.limits.approvals;
    },
    refused: () => meters.limits.count("server.limits.approvals"),
    logger,
  });
  return { parts: { approvals } };
};

type DeclaredNeeds = "manifest" | "registry" | "host" | "meters" | "approvals";

export const declaredTools: Stage<DeclaredNeeds, "declaredTools"> = ({
  manifest,
  registry,
  host,
  meters,
  approvals,
}) => {
  const { tools, problems } = compileTools(manifest, registry, host, { meters: meters.tools, inbox: approvals });
  return { parts: { declaredTools: tools }, problems };
};

type ModelNeeds = "manifest" | "registry" | "host" | "loaded" | "meters" | "options";

export const models: Stage<ModelNeeds, "models"> = async (
  { manifest, registry, host, loaded: { folder, variableOf, referenceAt }, meters, options: { cassettes, providers } },
  failed,
) => {
  const options = { folder, variableOf, referenceAt, cassettes, providers, meters: meters.models, isPartial: failed };
  const { models, problems } = await createModels(manifest, registry, host, options);
  return { parts: { models }, problems };
};

/** Connections to MCP servers, which generations share as long as their settings do not change. */
export const mcpClients: Stage<"loaded" | "options", "mcpClients"> = ({ loaded: { folder }, options: { logger } }) => ({
  parts: { mcpClients: new McpClients({ folder, logger }) },
});

export const tools: Stage<"manifest" | "declaredTools" | "mcpClients" | "meters", "tools"> = ({
  manifest,
  declaredTools,
  mcpClients,
  meters,
}) => {
  const tools = new ToolDirectory(declaredTools, manifest, { clients: mcpClients, meters: meters.tools });
  return { parts: { tools }, begin: () => tools.begin(), end: () => tools.close() };
};

/** Starts after the workflows, because their steps wait for answers. */
export const approvalInbox: Stage<"approvals" | "store" | "tools" | "agents" | "engine", never> = ({
  approvals,
  store,
  engine,
  ...known
}) => {
  approvals.connect(store, known);
  engine.onEnd = ({ start: { userId = "", id }, status }) =>
    approvals.withdrawAt(approvalPlace("execution", userId, id), status === "cancelled" ? status : "ended");
  return {
    parts: {},
    begin: () =>
      approvals.start({
        tellAnswer: (record) => tellAwaitingStep(engine, record),
        hasEnded: (record, isStored) => hasStepEnded(engine, record, isStored),
      }),
    end: () => approvals.close(),
    adopt: (next) => ({ apply: () => approvals.use(next) }),
  };
};
