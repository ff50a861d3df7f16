/** Agents for user interfaces that speak AG-UI. */
import { capabilitiesOf } from "../../ag-ui/capabilities.ts";
import { answerAgUi, keepsState } from "../../ag-ui/endpoint.ts";
import { findAgent, GENERATION } from "./agents.ts";
import { get, post } from "./row.ts";

export const AG_UI_ROUTES = [
  post("/agents/:id/ag-ui", "agui.run", "Stream a run as events of AG-UI", {
    description:
      "`threadId` is the conversation. A run that waits for a person ends with the outcome `interrupt`, and the client's next run brings the answer in `resume`.",
    body: "AgUiRequest",
    ...GENERATION,
    idempotent: "stream",
    output: { events: "AgUiEvent", failure: (message) => ({ type: "RUN_ERROR", message }) },
    handle: ({ params, body }, call) => answerAgUi(findAgent(call.service, params.id!), body, call),
  }),
  get("/agents/:id/ag-ui", "agui.capabilities", "What an agent can do, for AG-UI", {
    output: { bare: "AgUiCapabilities", type: "application/json; charset=utf-8" },
    handle({ params }, { service }) {
      const agent = findAgent(service, params.id!);
      const memory = agent.detail().memory === null ? null : service.chooseMemory(agent.id).memory;
      return { body: JSON.stringify(capabilitiesOf(agent, memory !== null && keepsState(memory))) };
    },
  }),
];
