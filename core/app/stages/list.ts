/**
 * The stages of boot, in order. They are compiled and begin from the top down, and end from the bottom up: runs end, what they
 * recorded is written, plugins let go, and the store closes last.
 */
import { access, verifier } from "./access.ts";
import { agents } from "./agents.ts";
import { memories } from "./memories.ts";
import { meters, metrics, traces } from "./observability.ts";
import { logs, platform } from "./platform.ts";
import { a2a, mcpServers } from "./protocols.ts";
import { routes } from "./routes.ts";
import { runs } from "./runs.ts";
import { membership, pluginStorage, replies, store } from "./store.ts";
import { approvalInbox, approvals, declaredTools, models, tools } from "./tools.ts";
import { workflows } from "./workflows.ts";

export const STAGES = [
  // These find most of what can be wrong, and leave nothing behind: the store is opened only where they find nothing.
  meters,
  approvals,
  declaredTools,
  models,
  routes,
  verifier,
  store,
  // From here on there is a store to work with.
  membership,
  replies,
  metrics,
  tools,
  traces,
  memories,
  agents,
  workflows,
  runs,
  approvalInbox,
  access,
  a2a,
  mcpServers,
  logs,
  platform,
  pluginStorage,
] as const;
