/** An agent after boot: whatever depends on the request is a function of it, and all else is computed. */
import type { PrepareSchema } from "../../client-schema/schemas.ts";
import type { ModelChain } from "../../models/models.ts";
import type { RunOutcome, Tally } from "../../observability/metrics/meters.ts";
import type { Entity } from "../../observability/span.ts";
import type { ApprovalInbox } from "../../tools/tool.ts";
import type { AgentMemory } from "../conversation/agent-memory.ts";
import type { History } from "../history/history.ts";
import type { Keeping } from "../run-requests.ts";
import type { Activity } from "./activity.ts";
import type { RunSettings } from "./options.ts";
import type { RequestBounds } from "./prompt-bounds.ts";
import type { Dynamic, RunSources, SourceReader } from "./sources.ts";
import type { ToolSet } from "./tool-set.ts";

export interface CompiledAgent {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  /** How spans identify the agent. */
  readonly entity: Entity;
  /** Name of the span of a run. */
  readonly spanName: string;
  /** The options of a request that sets none. */
  readonly defaults: RunSettings;
  /** What requests may ask for. */
  readonly bounds: RequestBounds;
  readonly instructions: Dynamic<string>;
  /** Texts of MCP servers that follow the instructions; null for an agent without any. */
  readonly sources: Dynamic<RunSources["list"]> | null;
  readonly reader: SourceReader;
  readonly chain: Dynamic<ModelChain>;
  readonly tools: Dynamic<ToolSet>;
  /** Most bytes of a tool's result that the model is shown. */
  readonly toolOutput: number;
  /** Null for an agent without memory. */
  readonly memory: AgentMemory | null;
  readonly history: History;
  /** Creates ids of runs, unique among all agents. */
  readonly newRunId: () => string;
  readonly activity: Activity;
  /** Counts its runs. */
  readonly runs?: Tally<RunOutcome> | undefined;
  /** Whether its runs survive the process. */
  readonly durable: boolean;
  /** Whether a person may have to approve calls of its tools. */
  readonly asks: boolean;
  /** Where people are asked; undefined where there are no tools. */
  readonly inbox: ApprovalInbox | undefined;
  readonly recovery: "resume" | "fail";
  readonly keeping: Keeping;
  /** Whether stored objects belong to the token's user. */
  readonly isolated: boolean;
  readonly prepareSchema: PrepareSchema;
}
