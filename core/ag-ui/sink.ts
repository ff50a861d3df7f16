/** `POST /agents/:id/ag-ui`: sends a run as AG-UI events. */
import type { AgUiEvent, AgUiInterrupt } from "../../generated/types.ts";
import type { AgentPart, PendingApproval } from "../agents/run/parts.ts";
import { EventPartSink } from "../agents/stream/event-part-sink.ts";
import type { EventSink } from "../lib/event-sink.ts";
import type { PartOf } from "./event-parts.ts";
import type { RunEvents } from "./events.ts";
import type { SharedState } from "./state.ts";

interface Asking {
  /** The interrupts that the client gets for the approvals with which the run ends. */
  interrupts(approvals: readonly PendingApproval[]): Promise<AgUiInterrupt[]>;
}

export class AgUiSink extends EventPartSink {
  readonly #run: RunEvents;
  readonly #asking: Asking;
  readonly #state: SharedState | null;

  /** @param state of an agent that keeps one, else null */
  constructor(events: EventSink, run: RunEvents, asking: Asking, state: SharedState | null) {
    super(events);
    this.#run = run;
    this.#asking = asking;
    this.#state = state;
  }

  override part(part: AgentPart): Promise<void> | undefined {
    if (part.type === "finish" && part.subAgentId === undefined) return this.#finish(part);
    const wait = this.#send(this.#run.of(part));
    if (this.#state === null || part.subAgentId !== undefined) return wait;
    if (part.type === "start") return this.#send(this.#state.begun());
    return part.type === "tool-result" && this.#state.isChangedBy(part.toolName) ? this.#changed(this.#state) : wait;
  }

  #finish(part: PartOf<"finish">): Promise<void> | undefined {
    const { approvals } = this.#run;
    if (approvals.length === 0) return this.#send(this.#run.finish(part, []));
    return this.#asking.interrupts(approvals).then((interrupts) => this.#send(this.#run.finish(part, interrupts)));
  }

  async #changed(state: SharedState): Promise<void> {
    await this.#send(await state.changed());
  }

  /** @returns a promise to wait for before the next part, if the reader is behind */
  #send(events: readonly AgUiEvent[]): Promise<void> | undefined {
    let wait: Promise<void> | undefined;
    for (const event of events) wait = this.events.send(JSON.stringify(event));
    return wait;
  }
}
