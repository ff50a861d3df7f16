/** What a tool call needs, for tests. */
import { pino } from "pino";
import type { Tool, ToolOrigin } from "../../core/tools/tool.ts";

export const silent = pino({ level: "silent" });

export function tool(run: Tool["run"], change: Partial<Tool> = {}): Tool {
  return {
    name: "probe",
    description: "",
    tags: [],
    parameters: { type: "object" },
    approval: false,
    timeout: 60_000,
    config: {},
    validate: () => null,
    run,
    ...change,
  };
}

export function origin(change: Partial<ToolOrigin["call"]> = {}, rest: Partial<ToolOrigin> = {}): ToolOrigin {
  const call = { signal: new AbortController().signal, logger: silent, user: null, requestId: "request-1", ...change };
  return { call, context: {}, ...rest };
}
