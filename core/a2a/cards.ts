/** The cards of a service. Each is made when it is requested, because the address of the service is part of it. */
import { createHash } from "node:crypto";
import type { AgentSummary } from "../../generated/types.ts";
import { agentCard, type CardFacts } from "./card.ts";

export interface Card {
  readonly json: string;
  /** The entity tag for `ETag` and `If-None-Match`, with its quotes. */
  readonly tag: string;
}

interface CardSource {
  readonly agents: ReadonlyMap<string, { summary(): AgentSummary }>;
  readonly tagsOf: CardFacts["tagsOf"];
  readonly asks: CardFacts["asks"];
  readonly version: string;
  baseUrl(): string;
  readonly pushNotifications: boolean;
  accessOf(agentId: string): CardFacts["access"];
}

export class Cards {
  readonly #source: CardSource;

  constructor(source: CardSource) {
    this.#source = source;
  }

  /**
   * The card of an agent; undefined when there is no such agent.
   *
   * @param isDual as in `CardFacts`
   * @param origin the address that the client uses, if it differs from the service's own
   */
  of(agentId: string, isDual: boolean, origin: string | null): Card | undefined {
    const source = this.#source;
    const agent = source.agents.get(agentId)?.summary();
    if (agent === undefined) return undefined;
    const baseUrl = origin ?? source.baseUrl();
    const json = JSON.stringify(agentCard({ ...source, agent, baseUrl, access: source.accessOf(agentId), isDual }));
    return { json, tag: `"${createHash("sha256").update(json).digest("base64url").slice(0, 22)}"` };
  }
}
