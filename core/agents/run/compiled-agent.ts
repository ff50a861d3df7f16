/** An agent as it stands after boot: what can be known ahead is, and the rest is a function of the request. */

import type { PrepareSchema } from "../../client-schema/schemas.ts";
import type { ModelChain } from "../../models/chain.ts";
import type { RunOutcome } from "../../observability/metrics/outcomes.ts";
import type { Tally } from "../../observability/metrics/tally.ts";
import type { Entity } from "../../observability/sink.ts";
import type { RunCall } from "../agent.ts";
import type { AgentMemory } from "../conversation/agent-memory.ts";
import type { History } from "../history/history.ts";
import type { Activity } from "./activity.ts";
import type { Settings } from "./options.ts";
import type { ToolSet } from "./tool-set.ts";

/** Names in scope of an agent's expressions. */
export interface AgentScope {
  readonly context: Record<string, unknown>;
  readonly user: RunCall["user"];
}

/** A value that may depend on the request. Throws ServiceError `invalid_input` where the request makes no sense of it. */
export type Dynamic<T> = (scope: AgentScope) => T;

export interface AgentCore {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  /** The agent as spans name it. */
  readonly entity: Entity;
  /** What the span of a run is called. */
  readonly spanName: string;
  /** The options of a request that says nothing. */
  readonly defaults: Settings;
  readonly instructions: Dynamic<string>;
  readonly chain: Dynamic<ModelChain>;
  readonly tools: Dynamic<ToolSet>;
  /** Null for an agent that forgets. */
  readonly memory: AgentMemory | null;
  readonly history: History;
  /** Ids of runs, unique over all agents. */
  readonly newRunId: () => string;
  readonly activity: Activity;
  /** What its runs are counted by. */
  readonly runs?: Tally<RunOutcome> | undefined;
  /** Whether stored objects belong to the token's user. */
  readonly isolated: boolean;
  readonly prepareSchema: PrepareSchema;
}
