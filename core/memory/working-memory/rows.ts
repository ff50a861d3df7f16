/** Reads and writes working memory: that of a conversation, or of a user in a memory. */
import type { WorkingMemory } from "../../../generated/types.ts";
import type { Principal } from "../../identity/principal.ts";
import { invalid } from "../../lib/errors.ts";
import { conversationKey, conversationWorkingMemoryKey, userWorkingMemoryKey } from "../../storage/keys.ts";
import type { Domain } from "../domain.ts";
import type { WorkingMemoryScope } from "../memory.ts";
import { isRowOf, type Snapshot } from "../records/conversation.ts";
import { retryOnConflict } from "../records/directory.ts";
import type { Target } from "../records/target.ts";
import type { WorkingMemoryRules } from "./content.ts";

/** @throws ServiceError `invalid_input` when the memory has no working memory, or one with another scope */
export function workingMemoryRulesFor(
  name: string,
  rules: WorkingMemoryRules | undefined,
  scope: WorkingMemoryScope | undefined,
): WorkingMemoryRules {
  if (rules === undefined)
    throw invalid(`memory ${JSON.stringify(name)} has no working memory (memory.${name}.workingMemory)`);
  if (scope === undefined || scope === rules.settings.scope) return rules;
  throw invalid(`scope must be ${rules.settings.scope}: that is the one of this working memory`);
}

/** @throws ServiceError `invalid_input` when the request names another user, or none when it must name one */
export function checkWorkingMemoryOwner(
  principal: Principal,
  { userId }: Target,
  request: { scope?: string; userId?: string },
): void {
  if (request.userId !== undefined && request.userId !== userId) {
    throw invalid("userId must be the owner of the conversation");
  }
  if (request.scope === "user" && request.userId === undefined && !principal.isolated) {
    throw invalid("userId is required with scope=user");
  }
}

/** With scope `user` the conversation need not exist. With the other scope it may be out of date: then nothing is found. */
export async function readWorkingMemory(
  { store }: Domain,
  rules: WorkingMemoryRules,
  target: Target & Pick<Snapshot, "id">,
): Promise<WorkingMemory> {
  const key = workingMemoryKey(rules, target);
  if (rules.settings.scope === "user") return formatWorkingMemory(rules, (await store.get(key))?.value);
  const [row, conversation] = await store.getMany([key, conversationKey(target.number)]);
  const isOwn = conversation !== undefined && isRowOf(target, conversation);
  return formatWorkingMemory(rules, isOwn ? row?.value : undefined);
}

export function formatWorkingMemory(rules: WorkingMemoryRules, stored: string | undefined): WorkingMemory {
  const { scope, format, template = null } = rules.settings;
  return { content: stored === undefined ? null : rules.toApi(stored), scope, format, template };
}

function workingMemoryKey(rules: WorkingMemoryRules, { memory, number, userId }: Target): string {
  return rules.settings.scope === "user" ? userWorkingMemoryKey(memory, userId) : conversationWorkingMemoryKey(number);
}

/** @throws ConversationGone when the conversation has been deleted */
export function writeWorkingMemory(
  domain: Domain,
  rules: WorkingMemoryRules,
  conversation: Snapshot,
  content: string | Record<string, unknown>,
  append: boolean,
): Promise<void> {
  const key = workingMemoryKey(rules, conversation);
  return domain.mutex.run([conversation.number], () =>
    retryOnConflict(async (reload) => {
      const { memory, userId, number, revision } = await domain.conversations.current(conversation, reload);
      const before = append ? await domain.store.get(key) : undefined;
      const value = rules.next(content, before?.value);
      await domain.store.commit({
        put: [[key, value]],
        expect: [[conversationKey(number), revision], ...(append ? [[key, before?.revision ?? null] as const] : [])],
        of: [rules.settings.scope === "user" ? { memory, userId } : { memory, userId, number }],
      });
    }),
  );
}
