/**
 * The stages of boot, in order. They are compiled and started from first to last, and end in reverse order: runs end, what they
 * recorded is written, plugins are closed, and the store last.
 *
 * A reload makes the next generation of the service beside the current one: kept stages stay as they are, all others are made anew.
 */
import { access, verifier } from "./access.ts";
import { agents, histories, turns } from "./agents.ts";
import { memories, memoryDomain } from "./memories.ts";
import { meters, metrics, tracer, traces } from "./observability.ts";
import { logs, platform } from "./platform.ts";
import { a2a, mcpLists, mcpServers, responses } from "./protocols.ts";
import { routes } from "./routes.ts";
import { runs } from "./runs.ts";
import { fixedBy, kept } from "./stage.ts";
import { membership, pluginHost, pluginStorage, replies, store } from "./store.ts";
import { approvalInbox, approvals, declaredTools, mcpClients, models, tools } from "./tools.ts";
import { workflows } from "./workflows.ts";

export const STAGES = [
  // The stages up to here find most problems and have no side effects: the store is opened only if they find none.
  kept(meters),
  kept(approvals),
  declaredTools,
  models,
  routes,
  verifier,
  kept(store, ["store"]),
  // From here on the store is open.
  pluginHost,
  kept(membership),
  kept(replies),
  kept(metrics),
  kept(mcpClients),
  tools,
  kept(traces),
  tracer,
  kept(memoryDomain, ["memory.*.semantic", "server.limits.vectors"]),
  memories,
  kept(turns),
  kept(histories),
  agents,
  kept(workflows),
  kept(runs),
  kept(approvalInbox),
  access,
  kept(a2a),
  kept(responses),
  mcpServers,
  kept(mcpLists),
  kept(logs),
  kept(platform),
  kept(pluginStorage),
] as const;

/** Settings that a reload cannot change: those of kept stages, and those of the listener, of loaded code, and of ownership in the store. */
export const FIXED_SETTINGS: readonly string[] = [
  "server.host",
  "server.port",
  "server.transport",
  "server.limits.socketMessage",
  "plugins",
  ...fixedBy(STAGES),
];
