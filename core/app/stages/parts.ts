/** Everything that boot makes, by name. Each stage declares which of these it needs and which it makes. */
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
import type { ListChanges } from "../../mcp/list-changes.ts";
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
  /** Called with the secrets that lines of `logger` must not show, as soon as they are known. */
  text?: LogText;
  /** Keeps the lines of `logger`; by default they are not kept. */
  ring?: LogRing;
  /** Opens the manifest's store, once there is no other problem. Default: false, so that commands that only check leave no file. */
  store?: boolean;
  /** The folder of the package.json whose packages `/updates` is about; default: Penstock's own. */
  project?: string;
  /** False leaves the indexes of semantic search unchanged, whatever their state. */
  semantic?: boolean;
  /** `exact` keeps vectors beside the messages, whatever the manifest says. */
  vectors?: "exact";
  /** `all` creates even providers that nothing in the manifest uses. */
  providers?: "all";
  /** Records or replays the answers of providers; by default they are called. */
  cassettes?: CassetteIntercept | undefined;
}

/** The parts that exist before the first stage. */
export interface FirstParts {
  readonly options: BootOptions;
  readonly loaded: LoadedManifest;
  /**
   * The manifest, or the valid part of one that has errors, so that later problems appear in the same report. Kept stages get one
   * that always has the values of the current manifest, even after a reload.
   */
  readonly manifest: Manifest;
  readonly registry: Registry;
  /** For kept stages, the host lasts as long as the process. */
  readonly host: OwnedHost;
  /** The storage of plugins. */
  readonly namespaces: Namespaces;
  /** Counts the work in progress that uses the parts of this generation. */
  readonly uses: Uses;
}

export interface Parts extends FirstParts {
  readonly meters: Meters;
  /** Approvals: questions to people before a tool runs. */
  readonly approvals: Approvals;
  /** The tools of the manifest, without those of MCP servers. */
  readonly declaredTools: ReadonlyMap<string, Tool>;
  readonly models: Models;
  readonly routes: readonly Route<Service>[];
  readonly sockets: readonly SocketRoute<Service>[];
  /** The routes and sockets together, for rules about paths. */
  readonly paths: readonly { readonly method: string; readonly path: string; readonly group: AccessGroup }[];
  /** Verifies the tokens of users; null when no auth provider is configured, and without authentication. */
  readonly verifier: Verifier | null;
  readonly store: Store;
  /** The processes that share the store; null when the store cannot be shared. */
  readonly membership: Membership | null;
  /** The replies to requests with an `Idempotency-Key`. */
  readonly replies: KeptReplies;
  /** All metrics, as a page. */
  readonly metrics: MetricsPage;
  readonly mcpClients: McpClients;
  readonly tools: ToolDirectory;
  /** Recorded traces of runs. */
  readonly traces: Traces;
  /** Null when tracing is off. */
  readonly tracer: Tracer | null;
  readonly memoryDomain: MemoryDomain;
  /** By their name in the manifest. */
  readonly memories: ReadonlyMap<string, Memory>;
  /** The turns of conversations that are at work or wait. */
  readonly turns: Turns;
  readonly histories: AgentHistories;
  readonly agents: ReadonlyMap<string, Agent>;
  /** Sets the keeper of the agents' runs. */
  readonly keepRuns: (keeper: RunKeeper) => void;
  readonly workflows: Workflows;
  readonly engine: Engine;
  /** The agent runs that are kept. */
  readonly runs: KeptRuns;
  /** Which credentials a route needs. */
  readonly access: AccessRules;
  /** The tasks of agents over A2A. */
  readonly a2a: A2a;
  /** The responses of agents over OpenAI's API. */
  readonly responses: Responses;
  /** By id. */
  readonly mcpServers: ReadonlyMap<string, McpServer<Service>>;
  /** Tells those who listen to an MCP server. */
  readonly mcpLists: ListChanges;
  /** The newest lines of the log. */
  readonly logs: LogRing;
  /** The log lines as they are written, for sockets. */
  readonly logNews: Feed<LogNews>;
  readonly platform: Platform;
}
