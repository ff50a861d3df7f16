/** The cards of a service. Each is made when it is first requested, because the address of the service is part of it. */
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
  readonly #made = new Map<string, Card>();

  constructor(source: CardSource) {
    this.#source = source;
  }

  /**
   * The card of an agent; undefined when there is no such agent.
   *
   * @param origin the address that the client uses, if it differs from the service's own
   */
  of(agentId: string, origin: string | null): Card | undefined {
    const agent = this.#source.agents.get(agentId);
    if (agent === undefined) return undefined;
    // Not cached: clients choose the origin, so there could be any number of them.
    if (origin !== null) return this.#make(agent.summary(), origin);
    let card = this.#made.get(agentId);
    if (card === undefined) {
      card = this.#make(agent.summary(), this.#source.baseUrl());
      this.#made.set(agentId, card);
    }
    return card;
  }

  /** Must be called when what agents can do has changed. */
  forget(): void {
    this.#made.clear();
  }

  #make(agent: AgentSummary, baseUrl: string): Card {
    const { tagsOf, asks, version, pushNotifications } = this.#source;
    const access = this.#source.accessOf(agent.id);
    const json = JSON.stringify(agentCard({ agent, tagsOf, asks, version, baseUrl, access, pushNotifications }));
    return { json, tag: `"${createHash("sha256").update(json).digest("base64url").slice(0, 22)}"` };
  }
}
