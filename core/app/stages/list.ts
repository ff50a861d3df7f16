/**
 * The stages of boot, in order. They are compiled and begin from the top down, and end from the bottom up: runs end, what they
 * recorded is written, plugins let go, and the store closes last.
 *
 * A reload makes the next generation of the service beside the one that serves: kept stages stay as they are, all others are made anew.
 */
import { access, verifier } from "./access.ts";
import { agents, histories, turns } from "./agents.ts";
import { memories, memoryDomain } from "./memories.ts";
import { meters, metrics, tracer, traces } from "./observability.ts";
import { logs, platform } from "./platform.ts";
import { a2a, mcpServers, responses } from "./protocols.ts";
import { routes } from "./routes.ts";
import { runs } from "./runs.ts";
import { fixedBy, kept } from "./stage.ts";
import { membership, pluginHost, pluginStorage, replies, store } from "./store.ts";
import { approvalInbox, approvals, declaredTools, mcpClients, models, tools } from "./tools.ts";
import { workflows } from "./workflows.ts";

export const STAGES = [
  // These find most of what can be wrong, and leave nothing behind: the store is opened only where they find nothing.
  kept(meters),
  kept(approvals),
  declaredTools,
  models,
  routes,
  verifier,
  kept(store, ["store"]),
  // From here on there is a store to work with.
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
  kept(logs),
  kept(platform),
  kept(pluginStorage),
] as const;

/** Settings that a reload cannot change: those of kept stages, and what is listening, loaded or the owner of what is stored. */
export const FIXED_SETTINGS: readonly string[] = [
  "server.host",
  "server.port",
  "server.transport",
  "server.limits.socketMessage",
  "plugins",
  ...fixedBy(STAGES),
];
