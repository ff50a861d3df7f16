/** The cards of a service. Each is made when it is requested, because the address of the service is part of it. */
import { createHash } from "node:crypto";
import type { AgentSummary } from "../../generated/types.ts";
import type { AccessClass } from "../auth/classes.ts";

/* Agent cards (A2A 1.0, "Agent Discovery: The Agent Card"). */

/** The data for a card. The instructions of the agent are left out: a prompt is not for clients. */
interface CardFacts {
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
  /** For clients that do not say their version: the fields of 0.3 are beside those of 1.0. */
  readonly isDual: boolean;
}

/** What every agent accepts, whatever its model: text, and data as text. */
const INPUT_MODES = ["text/plain", "application/json"];
const OUTPUT_MODES = ["text/plain"];

/** URI of the extension that defines the format of questions and answers (docs/protocols.md). */
const APPROVALS = "https://penstock.dev/a2a/approvals/v1";

function agentCard(facts: CardFacts) {
  const { agent, version, baseUrl, access, isDual } = facts;
  const url = `${baseUrl}/a2a/${encodeURIComponent(agent.id)}`;
  return {
    name: agent.name,
    description: agent.description || agent.name,
    version,
    supportedInterfaces: [
      { url, protocolBinding: "JSONRPC", protocolVersion: "1.0" },
      { url, protocolBinding: "JSONRPC", protocolVersion: "0.3" },
    ],
    ...(isDual && { url, preferredTransport: "JSONRPC", protocolVersion: "0.3.0" }),
    capabilities: { streaming: true, pushNotifications: facts.pushNotifications, ...extensions(facts) },
    ...security(access, isDual),
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
  return [
    skill("agent", agent.id, agent, ["agent"]),
    ...agent.tools.map((tool) => {
      const tags = ["tool", ...(asks(tool.name) ? ["approval"] : []), ...tagsOf(tool.name)];
      return skill("tool", tool.name, tool, [...new Set(tags)]);
    }),
    ...agent.subAgents.map((sub) => skill("agent", sub.id, sub, ["agent", "delegate"])),
  ];
}

const skill = (
  kind: string,
  id: string,
  { name, description }: { name: string; description?: string | null },
  tags: string[],
) => ({
  id: `${kind}:${id}`,
  name,
  description: description || name,
  tags,
});

const TOKEN = { scheme: "bearer", description: "The token of a user." };
const KEY = { name: "x-console-access-key", description: "The key of the console." };

/** Each scheme in the format of 1.0, and what 0.3 has in its place. */
const SCHEMES = {
  userToken: [{ httpAuthSecurityScheme: TOKEN }, { type: "http", ...TOKEN }],
  consoleKey: [{ apiKeySecurityScheme: { location: "header", ...KEY } }, { type: "apiKey", in: "header", ...KEY }],
};

type Scheme = keyof typeof SCHEMES;

/** The schemes of each access class; any one of them is enough. */
const ACCEPTED: Record<AccessClass, readonly Scheme[]> = {
  public: [],
  user: ["userToken"],
  console: ["consoleKey"],
  operator: ["userToken", "consoleKey"],
};

function security(access: AccessClass, isDual: boolean) {
  const names = ACCEPTED[access];
  if (names.length === 0) return {};
  return {
    securitySchemes: Object.fromEntries(
      names.map((name) => [name, { ...SCHEMES[name][0], ...(isDual && SCHEMES[name][1]) }]),
    ),
    securityRequirements: names.map((name) => ({ schemes: { [name]: { list: [] } } })),
    ...(isDual && { security: names.map((name) => ({ [name]: [] })) }),
  };
}

export interface Card {
  readonly json: string;
  /** The entity tag for `ETag` and `If-None-Match`, with its quotes. */
  readonly tag: string;
}

interface CardSource extends Pick<CardFacts, "tagsOf" | "asks" | "version" | "pushNotifications"> {
  readonly agents: ReadonlyMap<string, { summary(): AgentSummary }>;
  baseUrl(): string;
  accessOf(agentId: string): CardFacts["access"];
}

/**
 * Gives the card of an agent; undefined when there is no such agent. `origin` is the address that the client uses, if it differs from the
 * service's own.
 */
export const cardsOf =
  (source: CardSource) =>
  (agentId: string, isDual: boolean, origin: string | null): Card | undefined => {
    const agent = source.agents.get(agentId)?.summary();
    if (agent === undefined) return undefined;
    const baseUrl = origin ?? source.baseUrl();
    const json = JSON.stringify(agentCard({ ...source, agent, baseUrl, access: source.accessOf(agentId), isDual }));
    return { json, tag: `"${createHash("sha256").update(json).digest("base64url").slice(0, 22)}"` };
  };
