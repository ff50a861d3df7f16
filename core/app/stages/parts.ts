/** Everything that boot makes, by name. Each stage says which of these it needs and which it makes. */
import type { Logger } from "pino";
import type { A2a } from "../../a2a/a2a.ts";
import type { Agent } from "../../agents/agent.ts";
import type { Turns } from "../../agents/conversation/turns.ts";
import type { AgentHistories } from "../../agents/history/history.ts";
import type { RunKeeper } from "../../agents/keeper.ts";
import type { LogNews } from "../../api/sockets/log-news.ts";
import type { Approvals } from "../../approvals/approvals.ts";
import type { AccessRules } from "../../auth/classes.ts";
import type { Verifier } from "../../auth/provider-port.ts";
import type { Feed } from "../../http/feed.ts";
import type { AccessGroup, Route } from "../../http/route.ts";
import type { SocketRoute } from "../../http/socket.ts";
import type { Uses } from "../../lib/uses.ts";
import type { LoadedManifest } from "../../manifest/load.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import type { McpClients } from "../../mcp/clients.ts";
import type { McpServer } from "../../mcp/servers.ts";
import type { ToolDirectory } from "../../mcp/tool-directory.ts";
import type { MemoryDomain } from "../../memory/memories.ts";
import type { Memory } from "../../memory/memory.ts";
import type { CassetteIntercept } from "../../models/cassettes/record.ts";
import type { Models } from "../../models/models.ts";
import type { LogRing } from "../../observability/log-ring.ts";
import type { LogText } from "../../observability/log-text.ts";
import type { Meters } from "../../observability/metrics/meters.ts";
import type { MetricsPage } from "../../observability/metrics/page.ts";
import type { Tracer } from "../../observability/tracer.ts";
import type { Responses } from "../../openai/responses.ts";
import type { Platform } from "../../platform/platform.ts";
import type { OwnedHost } from "../../registry/host.ts";
import type { Registry } from "../../registry/registry.ts";
import type { KeptRuns } from "../../runs/kept-runs.ts";
import type { KeptReplies } from "../../storage/kept-replies.ts";
import type { Namespaces } from "../../storage/keyv-namespace.ts";
import type { Membership } from "../../storage/membership.ts";
import type { Store } from "../../storage/store.ts";
import type { Tool } from "../../tools/tool.ts";
import type { Traces } from "../../traces/traces.ts";
import type { Engine } from "../../workflows/engine.ts";
import type { Workflows } from "../../workflows/workflows.ts";
import type { Service } from "../service.ts";

export interface BootOptions {
  config: string;
  /** Folders of plugins beside the built-in one and those that the manifest names. */
  plugins: readonly string[];
  env: Readonly<Record<string, string | undefined>>;
  logger: Logger;
  /** Told what the lines of `logger` must not show, as soon as that is known. */
  text?: LogText;
  /** What keeps the lines of `logger`; default: nothing does. */
  ring?: LogRing;
  /** Open the manifest's store, once nothing else is wrong. Default: no, so that commands which only look leave no file. */
  store?: boolean;
  /** The folder of the package.json whose packages are looked after; default: Penstock's own. */
  project?: string;
  /** False: leave the indexes of semantic search alone, whatever state they are in. */
  semantic?: boolean;
  /** `exact`: vectors are kept beside the messages, whatever the manifest says. */
  vectors?: "exact";
  /** `all`: providers that nothing in the manifest uses can be asked too. */
  providers?: "all";
  /** Records or replays what providers answer; default: they are called. */
  cassettes?: CassetteIntercept | undefined;
}

/** What there is before the first stage. */
export interface FirstParts {
  readonly options: BootOptions;
  readonly loaded: LoadedManifest;
  /**
   * The manifest, or the valid part of one that has errors: what is wrong there belongs into the same report. Kept stages are given
   * the manifest that is in force, whose values change with a reload.
   */
  readonly manifest: Manifest;
  readonly registry: Registry;
  /** Kept stages are given one that lasts as long as the process. */
  readonly host: OwnedHost;
  /** What plugins store. */
  readonly namespaces: Namespaces;
  /** Counts what is at work with the parts of this generation. */
  readonly uses: Uses;
}

export interface Parts extends FirstParts {
  readonly meters: Meters;
  /** Questions that people are asked before a tool runs. */
  readonly approvals: Approvals;
  /** Those of the manifest, without those of MCP servers. */
  readonly declaredTools: ReadonlyMap<string, Tool>;
  readonly models: Models;
  readonly routes: readonly Route<Service>[];
  readonly sockets: readonly SocketRoute<Service>[];
  /** Routes and sockets alike, for rules that go by the path. */
  readonly paths: readonly { readonly method: string; readonly path: string; readonly group: AccessGroup }[];
  /** What checks the tokens of users; null where no provider is named, and without authentication. */
  readonly verifier: Verifier | null;
  readonly store: Store;
  /** The processes that share the store; null where no other one can use it. */
  readonly membership: Membership | null;
  /** The replies to requests with an `Idempotency-Key`. */
  readonly replies: KeptReplies;
  readonly metrics: MetricsPage;
  readonly mcpClients: McpClients;
  readonly tools: ToolDirectory;
  readonly traces: Traces;
  /** Null where nothing is traced. */
  readonly tracer: Tracer | null;
  readonly memoryDomain: MemoryDomain;
  readonly memories: ReadonlyMap<string, Memory>;
  readonly turns: Turns;
  readonly histories: AgentHistories;
  readonly agents: ReadonlyMap<string, Agent>;
  /** Tells the agents what keeps their runs. */
  readonly keepRuns: (keeper: RunKeeper) => void;
  readonly workflows: Workflows;
  readonly engine: Engine;
  readonly runs: KeptRuns;
  readonly access: AccessRules;
  readonly a2a: A2a;
  readonly responses: Responses;
  readonly mcpServers: ReadonlyMap<string, McpServer<Service>>;
  readonly logs: LogRing;
  readonly logNews: Feed<LogNews>;
  readonly platform: Platform;
}
