/** The cards of a service. Each is made when it is requested, because the address of the service is part of it. */
import { createHash } from "node:crypto";
import type { AgentSummary } from "../../generated/types.ts";
import { agentCard, type CardFacts } from "./card.ts";

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
