/** The push configurations of tasks, for one request: the owner of a task sets, lists and deletes them. */
import type { SendMessageRequest, TaskPushNotificationConfig } from "@a2a-js/sdk";
import { PushNotificationNotSupportedError } from "@a2a-js/sdk/errors";
import { ownerOf, type Principal } from "../identity/principal.ts";
import { systemTime } from "../lib/clock.ts";
import { invalid, quoted, ServiceError } from "../lib/errors.ts";
import { changeInTurn } from "../storage/store.ts";
import { taskNotFound } from "./errors.ts";
import type { Version } from "./params.ts";
import { type PushConfig, readPushConfig, shownConfig } from "./push-config.ts";
import type { PushSender } from "./push-sender.ts";
import { noPushes, withConfig } from "./pushes.ts";
import { isWorking } from "./task.ts";
import type { FoundTask } from "./task-rows.ts";
import type { Tasks } from "./tasks.ts";

interface PushConfigsSource {
  /** Id of the agent. */
  readonly agent: string;
  /** Its card, as JSON. */
  readonly card: () => string;
  readonly tasks: Tasks;
  readonly pushes: PushSender;
  readonly principal: Principal;
}

/** Where the configuration is in a message and in a separate request, by version. */
const PLACES: Readonly<Record<Version, readonly [message: string, own: string]>> = {
  "1.0": ["params.configuration.taskPushNotificationConfig", "params"],
  "0.3": ["params.configuration.pushNotificationConfig", "params.pushNotificationConfig"],
};

export class PushConfigs {
  readonly #source: PushConfigsSource;

  constructor(source: PushConfigsSource) {
    this.#source = source;
  }

  /** The configuration in a message. @throws PushNotificationNotSupportedError; ServiceError `invalid_input` */
  ofMessage({ configuration }: SendMessageRequest, version: Version): ((task: string) => PushConfig) | undefined {
    const given = configuration?.taskPushNotificationConfig;
    if (given === undefined) return undefined;
    if (!this.#source.pushes.isEnabled) throw new PushNotificationNotSupportedError();
    const read = (task: string) => this.#read(given, task, version, PLACES[version][0]);
    // Validated before the task exists, so that an invalid configuration starts no task.
    read("");
    return read;
  }

  async create(given: TaskPushNotificationConfig, version: Version): Promise<TaskPushNotificationConfig> {
    const config = await this.set(given.taskId, (task) => this.#read(given, task, version, PLACES[version][1]));
    return shownConfig(given.taskId, config);
  }

  async get(task: string, id: string): Promise<TaskPushNotificationConfig> {
    const { configs } = await this.list(task);
    const found = configs.find((config) => config.id === (id || task));
    if (found === undefined) throw unknownConfig(task, id || task);
    return found;
  }

  async list(task: string) {
    await this.#own(task);
    const found = await this.#source.tasks.rows.pushes.read(task);
    return { configs: (found?.record.pushes ?? []).map(({ config }) => shownConfig(task, config)), nextPageToken: "" };
  }

  /** Deletes a configuration. One that does not exist counts as deleted. */
  async delete(task: string, id: string): Promise<void> {
    await this.#own(task);
    await this.#source.tasks.rows.pushes.change(task, (before) => ({
      ...before,
      pushes: before.pushes.filter(({ config }) => config.id !== (id || task)),
    }));
  }

  #read(given: TaskPushNotificationConfig, task: string, version: Version, place: string): PushConfig {
    const { card, pushes } = this.#source;
    const [{ url: issuer }] = JSON.parse(card()).supportedInterfaces as [{ url: string }];
    return readPushConfig(given, { task, version, issuer, path: `${place}.url`, addresses: pushes.addresses });
  }

  /** The task, if it belongs to the caller: others must not see its configurations, even if they see the task. */
  async #own(id: string): Promise<FoundTask> {
    const { agent, tasks, principal } = this.#source;
    const found = await tasks.find(agent, id, principal);
    if (found === undefined) throw taskNotFound(id);
    const { owner } = found.record;
    if (owner !== "" && owner !== ownerOf(principal))
      throw new ServiceError("forbidden", `the push notification configurations of task ${id} belong to its user`);
    return found;
  }

  /** Sets a configuration of a task. */
  set(id: string, push: (task: string) => PushConfig): Promise<PushConfig> {
    const { tasks, pushes } = this.#source;
    const { perTask } = pushes;
    const { rows } = tasks;
    return changeInTurn("who is told of the task", async () => {
      const { record, revision } = await this.#own(id);
      const { agent, owner, task } = record;
      const config = push(id);
      const before = await rows.pushes.read(id);
      const isTold = !isWorking(task);
      const after = withConfig(before?.record ?? noPushes(agent, owner), config, isTold, systemTime());
      if (after.pushes.length > perTask)
        throw invalid(
          `task ${id} has ${perTask} push notification configurations, which is server.push.perTask: delete one, or give the id of the one to replace`,
        );
      // The expected revision ensures that the task has not ended meanwhile, without notifying this receiver.
      const expect = [
        [rows.pushes.key(id), before?.revision ?? null],
        [rows.of(agent).key(id), revision],
      ] as const;
      await rows.pushes.write(id, before, after, { expect });
      if (isTold) pushes.hurry();
      return config;
    });
  }
}

const unknownConfig = (task: string, id: string) =>
  invalid(`task ${task} has no push notification configuration ${quoted(id)}`);
