/** Stored responses: read, continued, cancelled and deleted by their owners, and kept as long as runs are. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { defaults } from "../../generated/defaults.ts";
import type { ResponseItemsQuery, ResponseQuery } from "../../generated/types.ts";
import type { Charge } from "../http/exchange.ts";
import type { TextStream } from "../http/route.ts";
import { isIsolated, mayAccess, type Principal, principalOf, type Requester } from "../identity/principal.ts";
import { invalid, messageOf, quoted } from "../lib/errors.ts";
import { Uses } from "../lib/uses.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { KeptRuns } from "../runs/kept-runs.ts";
import { type Store, unlessConflict } from "../storage/store.ts";
import { BackgroundResponses } from "./background.ts";
import { OpenaiError, unsupported } from "./errors.ts";
import type { ConversationItem, EarlierItems } from "./items.ts";
import type { ResponseResource } from "./resource.ts";
import { type FoundResponse, ResponseRows } from "./response-rows.ts";

/*  * The newest response of each open WebSocket, so that the next one can continue it although it is not stored. When all of them exceed
   a bound the oldest are dropped: their clients get the error that the response does not exist, and send the whole conversation again.
 */

/** Most characters of all of them together, and of a single one. */
const MAX_CHARACTERS = 64 * 1024 * 1024;
const MAX_CHARACTERS_OF_ONE = 8 * 1024 * 1024;

interface Recent {
  readonly id: string;
  /** The items of the conversation up to its end. */
  readonly items: EarlierItems;
}

export class RecentResponses {
  /** Responses by their socket, the oldest first. */
  readonly #bySocket = new Map<object, Recent>();
  #size = 0;

  /** The conversation up to that response, if it is the newest of the socket. */
  get(socket: object, id: string): EarlierItems | undefined {
    const recent = this.#bySocket.get(socket);
    return recent?.id === id ? recent.items : undefined;
  }

  set(socket: object, id: string, items: EarlierItems): void {
    this.forget(socket);
    if (items.size > MAX_CHARACTERS_OF_ONE) return;
    this.#bySocket.set(socket, { id, items });
    this.#size += items.size;
    for (const oldest of this.#bySocket.keys()) {
      if (this.#size <= MAX_CHARACTERS) return;
      this.forget(oldest);
    }
  }

  forget(socket: object): void {
    this.#size -= this.#bySocket.get(socket)?.items.size ?? 0;
    this.#bySocket.delete(socket);
  }
}

interface ResponsesSource {
  readonly store: Store;
  readonly runs: KeptRuns;
  readonly logger: Logger;
}

export class Responses {
  readonly rows: ResponseRows;
  readonly background: BackgroundResponses;
  /** The newest responses of open WebSockets. */
  readonly recent = new RecentResponses();
  /** Streamed runs that are heard to the end although their clients leave, so that their responses are stored. */
  readonly storing = new Set<string>();
  /** Counts responses over WebSockets, because sockets do not show whether they are busy. */
  readonly working = new Uses();
  /** Once true, sockets start no more responses. */
  stopping = false;
  readonly #manifest: Manifest;
  readonly #removal: ReturnType<ResponseRows["removal"]>;

  /** @param manifest read when it is needed, because a reload may change it */
  constructor(manifest: Manifest, { store, runs, logger }: ResponsesSource) {
    this.#manifest = manifest;
    this.rows = new ResponseRows(store);
    this.background = new BackgroundResponses(this.rows, runs, logger);
    this.#removal = this.rows.removal({
      room: "responses",
      kept: () => manifest.history.retention,
      stays: ({ record }) => record.resource.status === "in_progress",
      failed: (error) => logger.warn({ err: error }, `old responses could not be removed: ${messageOf(error)}`),
    });
  }

  start(): void {
    this.#removal.start();
  }

  /** Waits for the responses over WebSockets, at most some milliseconds. */
  async idle(timeout: number): Promise<void> {
    this.stopping = true;
    await Promise.race([this.working.whenOver(), sleep(timeout, undefined, { ref: false })]);
  }

  async close(): Promise<void> {
    this.background.close();
    await this.#removal.stop();
  }

  principalOf = (requester: Requester): Principal => principalOf(requester, isIsolated(this.#manifest));

  /** @throws OpenaiError when it does not exist for this principal */
  async get(id: string, principal: Principal, charge?: Charge): Promise<ResponseResource> {
    return (await this.#find(id, principal, charge)).record.resource;
  }

  /**
   * The events after the one numbered `query.starting_after`, then new ones.
   *
   * @throws OpenaiError for a response that did not run in the background
   */
  async follow(id: string, { starting_after: after = -1 }: ResponseQuery, principal: Principal): Promise<TextStream> {
    const { record } = await this.#find(id, principal);
    if (!record.resource.background) throw unsupported("stream", "is for responses that run in the background");
    return this.background.follow(record, principal, after, () => this.#find(id, principal));
  }

  /** Deletes a response; one that runs in the background is stopped. */
  async delete(id: string, principal: Principal): Promise<{ id: string; object: "response"; deleted: true }> {
    for (;;) {
      const found = await this.#find(id, principal);
      const { record } = found;
      if (record.resource.status === "in_progress" || record.waits === true)
        await this.background.cancel(record, principal);
      else if (await unlessConflict(this.rows.write(id, found, undefined)))
        return { id, object: "response", deleted: true };
    }
  }

  /** Cancels a response and returns it; one that had ended before is unchanged. */
  async cancel(id: string, principal: Principal): Promise<ResponseResource> {
    for (;;) {
      const { record } = await this.#find(id, principal);
      if (!record.resource.background)
        throw invalid("response_id must be that of a response in the background: others end with their request");
      if (record.resource.status !== "in_progress") return record.resource;
      await this.background.cancel(record, principal);
    }
  }

  async inputItems(id: string, query: ResponseItemsQuery, principal: Principal, charge?: Charge) {
    const { input } = (await this.#find(id, principal, charge)).record;
    return itemPage(input, query);
  }

  /** The response; undefined when it does not exist for this principal. */
  async lookUp(id: string, principal: Principal, charge?: Charge): Promise<FoundResponse | undefined> {
    const found = await this.rows.read(id);
    if (found === undefined || !mayAccess(principal, found.record.owner, undefined)) return undefined;
    charge?.copies(found.size);
    return this.background.settled(found, principal);
  }

  async #find(id: string, principal: Principal, charge?: Charge): Promise<FoundResponse> {
    const found = await this.lookUp(id, principal, charge);
    if (found === undefined)
      throw new OpenaiError("not_found", `response ${quoted(id)} does not exist`, "not_found", "response_id");
    return found;
  }
}

const { limit: LIMIT, order: ORDER } = defaults.ResponseItemsQuery;

function itemPage(input: readonly ConversationItem[], { limit = LIMIT, order = ORDER, after }: ResponseItemsQuery) {
  const items = order === "asc" ? input : input.toReversed();
  const begin = after === undefined ? 0 : items.findIndex(({ id }) => id === after) + 1;
  if (begin === 0 && after !== undefined) throw invalid("after must be the id of an item of the input");
  const data = items.slice(begin, begin + limit);
  return {
    object: "list",
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: begin + limit < items.length,
  };
}
