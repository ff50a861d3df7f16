/** `GET /agents/:id/ag-ui`: the capabilities of an agent in the format of AG-UI. */
import type { AgUiCapabilities } from "../../generated/types.ts";
import type { Agent } from "../agents/agent.ts";

export function capabilitiesOf(agent: Agent, keepsState: boolean): AgUiCapabilities {
  const { name, description, tools, subAgents, memory } = agent.summary();
  const items = tools.map(({ name, description, parameters }) => ({ name, description, parameters }));
  const delegates = subAgents.length > 0;
  return {
    identity: { name, type: "penstock", description },
    transport: { streaming: true },
    tools: { supported: true, clientProvided: true, parallelCalls: true, items },
    state: { snapshots: keepsState, deltas: false, memory: memory !== null, persistentState: keepsState },
    multiAgent: {
      supported: delegates,
      delegation: delegates,
      ...(delegates && { subagents: subAgents.map(({ name, description }) => ({ name, description })) }),
    },
    reasoning: { supported: true, streaming: true, encrypted: true },
    humanInTheLoop: { supported: true, approvals: true, interrupts: true, approveWithEdits: true },
  };
}
