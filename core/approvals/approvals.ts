/** The inbox of approvals: tools ask it whether a call may run, and people list and answer its questions. */
import type { Logger } from "pino";
import type { AnswerApprovalRequest, Approval, ApprovalsQuery } from "../../generated/types.ts";
import { mayAccess, ownerOf } from "../identity/ownership.ts";
import { principalOf, type Requester, seesEverything } from "../identity/principal.ts";
import { userIdOf } from "../identity/user.ts";
import { ServiceError, unavailable } from "../lib/errors.ts";
import type { Store } from "../storage/store.ts";
import type { ApprovalInbox, AskedCall } from "../tools/approval.ts";
import type { Tool } from "../tools/tool.ts";
import { admit } from "./admission.ts";
import { answer } from "./answer.ts";
import { type ApprovalRecord, type ApprovalStatus, approvalView, isAwaited } from "./record.ts";
import { ApprovalRows } from "./rows.ts";
import { type Deliver, type Delivery, settleDue, Upkeep } from "./upkeep.ts";

interface ApprovalOptions {
  /** Whether stored objects belong to the token's user. */
  readonly isolated: boolean;
  /** Whether there is no authentication: then everybody has the rights of the console. Read for every answer. */
  readonly open: boolean;
  /** Milliseconds for which a decided approval is kept. Read for every decision. */
  readonly retention: number;
  readonly logger: Logger;
}

const DEFAULT_LIMIT = 50;

export class Approvals implements ApprovalInbox {
  readonly #options: ApprovalOptions;
  #rows: ApprovalRows | null = null;
  #upkeep: Upkeep | null = null;
  #tools: { get(name: string): Tool | undefined } = new Map();
  #tellTask: Deliver = async () => "gone";

  /** Tools are compiled before there is a store. Until `connect`, no call that needs approval runs. */
  constructor(options: ApprovalOptions) {
    this.#options = options;
  }

  connect(store: Store, tools: { get(name: string): Tool | undefined }): void {
    this.#rows = new ApprovalRows(store, () => this.#options.retention);
    this.useTools(tools);
    this.#upkeep = new Upkeep(this.#rows, this.#options.logger);
  }

  /** Uses these tools to validate the inputs of answers from now on. */
  useTools(tools: { get(name: string): Tool | undefined }): void {
    this.#tools = tools;
  }

  /** @param deliver notifies a step of its answer */
  start(deliver: Deliver): void {
    this.#upkeep?.start((record) => (record.taskId === undefined ? deliver(record) : this.#tellTask(record)));
  }

  /** Must be called before `start`. @param deliver notifies an A2A task of its answer */
  tellTasks(deliver: (record: ApprovalRecord) => Promise<Delivery>): void {
    this.#tellTask = deliver;
  }

  async close(): Promise<void> {
    await this.#upkeep?.stop();
  }

  async admit(call: AskedCall): Promise<unknown> {
    return admit(this.#connected(), call, {
      // One that does not count, because somebody has answered before or the user is not permitted to, is ignored.
      hear: async (id, { from, ...answer }) => {
        try {
          await this.answer(id, answer, from);
        } catch (error) {
          if (!(error instanceof ServiceError) || error.kind === "unavailable") throw error;
        }
      },
    });
  }

  /** Approvals, newest first. Users see their own. */
  async list(query: ApprovalsQuery, requester: Requester): Promise<Approval[]> {
    const rows = this.#connected();
    const principal = principalOf(requester, this.#options.isolated);
    // An expired approval is no longer open, even if it has not been marked yet.
    if ((await settleDue(rows)) > 0) this.#upkeep?.hurry();
    const { status = "open", agentId, limit = DEFAULT_LIMIT, offset = 0 } = query;
    const owner = principal.isolated ? ownerOf(principal) : undefined;
    return (await rows.list({ status, agentId, owner, limit, offset })).map(approvalView);
  }

  /** The approval with that id, if the requester may see it. */
  async find(id: string, requester: Requester): Promise<Approval | undefined> {
    const found = await this.#connected().read(id);
    const principal = principalOf(requester, this.#options.isolated);
    return found === undefined || !mayAccess(principal, found.record.owner, undefined)
      ? undefined
      : approvalView(found.record);
  }

  async answer(id: string, body: AnswerApprovalRequest, requester: Requester): Promise<Approval> {
    const principal = principalOf(requester, this.#options.isolated);
    const { kind } = requester.caller;
    const isConsole = seesEverything(requester.caller) || this.#options.open;
    const name = userIdOf(requester.user) ?? (kind === "console" || kind === "dev" ? kind : "anonymous");
    const record = await answer(this.#connected(), id, body, { principal, name, isConsole }, this.#tools);
    if (isAwaited(record)) this.#upkeep?.hurry();
    return approvalView(record);
  }

  /** The statuses of questions by id, for those that exist. */
  async statusOf(ids: readonly string[]): Promise<Map<string, ApprovalStatus>> {
    const records = await this.#connected().readMany(ids);
    return new Map(records.map(({ id, status }) => [id, status]));
  }

  #connected(): ApprovalRows {
    if (this.#rows === null) throw unavailable("the service has not started yet");
    return this.#rows;
  }
}
