/**
 * Agent cards (A2A 1.0, "Agent Discovery: The Agent Card"). The corresponding fields of 0.3 are included beside those of
 * 1.0, whose clients ignore unknown fields: one card serves both.
 */
import type { AgentSummary } from "../../generated/types.ts";
import type { AccessClass } from "../auth/classes.ts";

/** The data for a card. The instructions of the agent are left out: a prompt is not for clients. */
export interface CardFacts {
  readonly agent: Pick<AgentSummary, "id" | "name" | "description" | "tools" | "subAgents">;
  /** Tags of a tool by its name. */
  readonly tagsOf: (tool: string) => readonly string[];
  /** Whether a person may have to approve a call of the tool. */
  readonly asks: (tool: string) => boolean;
  /** Version of the service. */
  readonly version: string;
  /** Absolute URL, without a slash at its end. */
  readonly baseUrl: string;
  /** The credentials that a call of this agent over A2A needs. */
  readonly access: AccessClass;
  /** Whether the manifest allows push notifications. */
  readonly pushNotifications: boolean;
}

interface Skill {
  id: string;
  name: string;
  description: string;
  tags: string[];
}

/** What every agent accepts, whatever its model: text, and data as text. */
const INPUT_MODES = ["text/plain", "application/json"];
const OUTPUT_MODES = ["text/plain"];

/** URI of the extension that defines the format of questions and answers (docs/protocols.md). */
const APPROVALS = "https://penstock.dev/a2a/approvals/v1";

export function agentCard(facts: CardFacts) {
  const { agent, version, baseUrl, access } = facts;
  const url = `${baseUrl}/a2a/${encodeURIComponent(agent.id)}`;
  return {
    name: agent.name,
    description: agent.description || agent.name,
    version,
    supportedInterfaces: [
      { url, protocolBinding: "JSONRPC", protocolVersion: "1.0" },
      { url, protocolBinding: "JSONRPC", protocolVersion: "0.3" },
    ],
    url,
    preferredTransport: "JSONRPC",
    protocolVersion: "0.3.0",
    capabilities: { streaming: true, pushNotifications: facts.pushNotifications, ...extensions(facts) },
    ...security(access),
    defaultInputModes: INPUT_MODES,
    defaultOutputModes: OUTPUT_MODES,
    skills: skills(facts),
  };
}

function extensions({ agent, asks }: CardFacts) {
  const tools = agent.tools.map(({ name }) => name).filter(asks);
  if (tools.length === 0) return {};
  const description =
    "A person approves calls of these tools. The task is input-required meanwhile, with a data part {approvalId, tool, input}; the answer is a message to the task with a data part {approvalId, approved, reason?, input?}, or the text yes or no.";
  return { extensions: [{ uri: APPROVALS, description, required: false, params: { tools } }] };
}

/** The agent itself, then its tools and the agents that it delegates to. */
function skills({ agent, tagsOf, asks }: CardFacts) {
  const { id, name, description, tools, subAgents } = agent;
  const skills: Skill[] = [{ id: `agent:${id}`, name, description: description || name, tags: ["agent"] }];
  for (const tool of tools) {
    const tags = [...new Set(["tool", ...(asks(tool.name) ? ["approval"] : []), ...tagsOf(tool.name)])];
    skills.push({ id: `tool:${tool.name}`, name: tool.name, description: tool.description || tool.name, tags });
  }
  for (const sub of subAgents) {
    const { id, name, description } = sub;
    skills.push({ id: `agent:${id}`, name, description: description || name, tags: ["agent", "delegate"] });
  }
  return skills;
}

/** Each scheme in the format of 1.0 and of 0.3. */
const SCHEMES = {
  userToken: {
    httpAuthSecurityScheme: { scheme: "bearer", description: "The token of a user." },
    type: "http",
    scheme: "bearer",
    description: "The token of a user.",
  },
  consoleKey: {
    apiKeySecurityScheme: {
      location: "header",
      name: "x-console-access-key",
      description: "The key of the console.",
    },
    type: "apiKey",
    in: "header",
    name: "x-console-access-key",
    description: "The key of the console.",
  },
};

type Scheme = keyof typeof SCHEMES;

/** The schemes of each access class; any one of them is enough. */
const ACCEPTED: Record<AccessClass, readonly Scheme[]> = {
  public: [],
  user: ["userToken"],
  console: ["consoleKey"],
  operator: ["userToken", "consoleKey"],
};

function security(access: AccessClass) {
  const names = ACCEPTED[access];
  if (names.length === 0) return {};
  return {
    securitySchemes: Object.fromEntries(names.map((name) => [name, SCHEMES[name]])),
    securityRequirements: names.map((name) => ({ schemes: { [name]: { list: [] } } })),
    security: names.map((name) => ({ [name]: [] })),
  };
}
