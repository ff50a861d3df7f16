/** Everything that boot makes, by name. Each stage declares which of these it needs and which it makes. */
import type { Logger } from "pino";
import type { AgentHistories } from "../../agents/history/history.ts";
import type { RunKeeper } from "../../agents/run-requests.ts";
import type { Verifier } from "../../auth/provider-port.ts";
import type { AccessGroup } from "../../http/route.ts";
import type { Uses } from "../../lib/uses.ts";
import type { LoadedManifest } from "../../manifest/load.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import type { McpClients } from "../../mcp/clients.ts";
import type { MemoryDomain } from "../../memory/memories.ts";
import type { CassetteIntercept } from "../../models/cassettes/intercept.ts";
import type { Models } from "../../models/models.ts";
import type { LogRing } from "../../observability/log-line.ts";
import type { LogText } from "../../observability/log-text.ts";
import type { Tracer } from "../../observability/tracer.ts";
import type { OwnedHost } from "../../registry/host.ts";
import type { Registry } from "../../registry/registry.ts";
import type { KeptReplies } from "../../storage/kept-replies.ts";
import type { Namespaces } from "../../storage/keyv-namespace.ts";
import type { Membership } from "../../storage/membership.ts";
import type { Tool } from "../../tools/tool.ts";
import type { Engine } from "../../workflows/engine.ts";
import type { ServiceParts } from "../service.ts";

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

export interface Parts extends FirstParts, Omit<ServiceParts, "manifest"> {
  /** The tools of the manifest, without those of MCP servers. */
  readonly declaredTools: ReadonlyMap<string, Tool>;
  readonly models: Models;
  /** The routes and sockets together, for rules about paths. */
  readonly paths: readonly { readonly method: string; readonly path: string; readonly group: AccessGroup }[];
  /** Verifies the tokens of users; null when no auth provider is configured, and without authentication. */
  readonly verifier: Verifier | null;
  /** The processes that share the store; null when the store cannot be shared. */
  readonly membership: Membership | null;
  /** The replies to requests with an `Idempotency-Key`. */
  readonly replies: KeptReplies;
  readonly mcpClients: McpClients;
  /** Null when tracing is off. */
  readonly tracer: Tracer | null;
  readonly memoryDomain: MemoryDomain;
  readonly histories: AgentHistories;
  /** Sets the keeper of the agents' runs. */
  readonly keepRuns: (keeper: RunKeeper) => void;
  readonly engine: Engine;
}
