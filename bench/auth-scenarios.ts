/** Authentication: requests of other rows under `authNext`, with credentials. The difference is what is measured. */
import { keyHeaders, tokenHeaders } from "./credentials.ts";
import type { HttpScenario } from "./scenarios.ts";

/** @param twins the rows with which these are compared */
export function authScenarios({ agents, text }: { agents: HttpScenario; text: HttpScenario }): HttpScenario[] {
  return [
    {
      ...agents,
      service: "auth",
      name: "agents-key",
      title: "GET /agents, with the console's key",
      headers: keyHeaders,
      twin: agents,
      aim: { measure: "% CPU above twin", most: 10 },
    },
    {
      ...text,
      service: "auth",
      name: "text-jwt",
      title: "POST /agents/:id/text, with a token",
      headers: tokenHeaders,
      twin: text,
      aim: { measure: "% CPU above twin", most: 15 },
    },
  ];
}
