import { actingUser } from "../../identity/acting-user.ts";
import { ANONYMOUS } from "../../identity/ownership.ts";
import { EVERYTHING, type Principal } from "../../identity/principal.ts";
import type { Memory } from "../../memory/memory.ts";
import type { RunCall } from "../agent.ts";
import type { MemorySettings } from "../run/options.ts";
import type { RunPlan } from "../run/run.ts";
import type { AgentTool, ToolSet } from "../run/tool-set.ts";
import { Turn } from "./turn.ts";
import { withWorkingMemory, workingMemorySection, workingMemoryTool } from "./working-memory.ts";

export interface TurnRequest {
  readonly runId: string;
  readonly input: unknown;
  readonly settings: MemorySettings;
  /** Whether the client is told the id of the assistant's message. */
  readonly told: boolean;
  readonly regenerate: boolean;
  /** On whose behalf. */
  readonly principal: Principal;
}

export interface AgentMemory {
  /** Null for a run without a conversation: nothing is read and nothing stored. */
  turn(request: TurnRequest, call: RunCall): Turn | null;
  /** The tools of a run that may write: the agent's, and the one for the working memory where there is one. */
  tools(own: ToolSet): ToolSet;
  /** Puts what the conversation holds into the prompt of a run that has a turn. Rejects like `Turn.recall`. */
  remind(plan: RunPlan, turn: Turn): Promise<void>;
}

export function agentMemory(agentId: string, memory: Memory): AgentMemory {
  const { workingMemory } = memory.settings;
  const tool = workingMemory === undefined ? null : workingMemoryTool(workingMemory);
  const everything = memory.for(EVERYTHING);
  const extended = new WeakMap<ToolSet, ToolSet>();
  return {
    turn({ runId, input, settings, told, regenerate, principal }, call) {
      const { conversationId } = settings;
      if (conversationId === undefined) return null;
      const userId = actingUser(principal, settings.userId) ?? ANONYMOUS;
      return new Turn({
        memory,
        access: principal === EVERYTHING ? everything : memory.for(principal),
        conversation: { id: conversationId, userId },
        resourceId: agentId,
        settings,
        input,
        messageId: messageIdOf(runId),
        told,
        regenerate,
        call,
      });
    },
    tools: tool === null ? (own) => own : (own) => extend(own, tool, extended),
    async remind(plan, turn) {
      const { messages, note } = await turn.recall();
      const { prompt } = plan;
      let at = plan.instructed ? 1 : 0;
      if (note !== undefined) {
        const section = workingMemorySection(workingMemory!, note, turn.writable && plan.remembers);
        const first = prompt[0]!;
        if (plan.instructed && first.role === "system") {
          prompt[0] = { role: "system", content: `${first.content}\n\n${section}` };
        } else {
          prompt.unshift({ role: "system", content: section });
          at = 1;
        }
      }
      prompt.splice(at, 0, ...messages);
    },
  };
}

/** Most agents have one set of tools for all requests. */
function extend(own: ToolSet, tool: AgentTool, extended: WeakMap<ToolSet, ToolSet>): ToolSet {
  let all = extended.get(own);
  if (all === undefined) {
    all = withWorkingMemory(own, tool);
    extended.set(own, all);
  }
  return all;
}

/** Id of the message that a run makes. */
export const messageIdOf = (runId: string) => `msg_${runId}`;
