/**
 * All layouts of keys. A key is parts joined by `/`; the first one names the table. `NAME` below is `text(name)`, `#` is
 * `number(n)`; values are JSON.
 *
 *   id/MEMORY/CONVERSATION          -> internal number of the conversation, where an id is one for everybody
 *   iu/MEMORY/CONVERSATION/USER     -> the same where ids belong to users (storage/id-spaces.ts)
 *   c/#/                            everything of one conversation, so that deleting it is one range
 *   c/#/i/MESSAGE                   -> position of a message whose id a client chose ("time/sequence")
 *   c/#/m/#time/#sequence           -> the message as the API gives it, `role` first
 *   c/#/n                           -> [the conversation as the API gives it (updatedAt last), messages it ever had];
 *                                   changes with every commit to its messages, so it stands beside the last of them
 *   c/#/w                           -> its working memory
 *   u/MEMORY/USER/#updatedAt/#      -> resource id; the user's conversations by their last change
 *   r/MEMORY/RESOURCE/#updatedAt/#  -> user id; the resource's conversations by their last change
 *   cc/#                            -> a copy that is being made in several commits: when it began, memory, user
 *   n/MEMORY/u/USER                 counter of the user's conversations
 *   n/MEMORY/r/RESOURCE             counter of the resource's conversations
 *   w/MEMORY/USER                   -> working memory of a user
 *   semantic/...                    indexes of semantic search (memory/semantic/layout.ts)
 *   s/NAME                          sequences
 *   h/AGENT/#startTime/RUN          -> a run as the agent's history gives it
 *   hu/AGENT/USER/#startTime/RUN    the runs of a user, where stored objects belong to users
 *   ho/RUN                          -> a run that is not over: the key of its row, and when it was last known to run
 *   n/h/AGENT                       counter of the runs in an agent's history
 *   n/hu/AGENT/USER                 counter of the user's runs among them
 *   x/#/r                           -> an execution of a workflow that rests: [record, rest] (workflows/rows.ts)
 *   x/#/j/#                         -> entries of its journal, in the order in which they were committed
 *   xo/#                            -> an execution that runs: [process, start, first entries]
 *   xn/ID                           -> number of an execution whose id a client chose, where an id is one for everybody
 *   xi/ID/USER                      -> the same where ids belong to users
 *   xs/STATUS/#createdAt/#          -> when it ended, or 0; executions that rest, by when they began
 *   xw/WORKFLOW/STATUS/#createdAt/# -> the same of one workflow
 *   xu/USER/STATUS/#createdAt/#     -> the same of one user
 *   xv/USER/WORKFLOW/STATUS/...     -> the same of one user and workflow
 *   xd/HASH                         -> a definition that executions are pinned to
 *   xp/PROCESS                      -> a process on a shared store: when it was last known to live
 *   xc/#                            -> what another process is asked to do with an execution that it runs
 *   th/SEGMENT                      -> head of a piece of what was traced (traces/segment.ts); SEGMENT is `#sealedAt/PROCESS`
 *   td/SEGMENT                      -> its spans
 *   tl/#second/SEGMENT              holds something that began in that second, long before it was sealed
 *   tf/TRACE/SEGMENT                holds spans of a trace whose id came from a caller, so that it tells no time
 *   n/t/WHAT                        counters: traces, spans, and characters of them
 *   a2/AGENT/TASK                   -> a task of A2A: whose it is, when it began and changed, and how it stands
 *   a2i/AGENT/#updatedAt/TASK       -> [state, context]; the agent's tasks by their last change
 *   a2u/AGENT/USER/#updatedAt/TASK  -> the same of one user, where stored objects belong to users
 *   a2o/TASK                        -> a task that is not over: its agent, and when it was last known to run
 *   kv/NAMESPACE/KEY                -> what a plugin keeps: the key as it wrote it, the value, when it ends
 *   kx/#expires/NAMESPACE/KEY       -> key of a row that ends
 *
 * Conversations are numbered in the order in which they are made, so that what is written grows at the end of the tree.
 */
import { decodeNumber, encodeNumber, encodeShortText, encodeText } from "./encoding.ts";
import type { IdKeys } from "./id-spaces.ts";

export const CONVERSATION_SEQUENCE = "s/conversation";

export const OWN_CONVERSATION_IDS = "iu/";
/** The row of a conversation's id: that of everybody, or that of a user. */
export const conversationIdKey = (memory: string, id: string, owner?: string): string =>
  owner === undefined
    ? `id/${encodeText(memory)}/${encodeText(id)}`
    : `iu/${encodeText(memory)}/${encodeText(id)}/${encodeShortText(owner)}`;
export const conversationIdKeys = (memory: string, id: string): IdKeys => ({
  of: (owner) => conversationIdKey(memory, id, owner),
  ofUsers: () => `iu/${encodeText(memory)}/${encodeText(id)}/`,
});
/** Prefixes of the ids of all conversations of a memory. */
export const conversationIds = (memory: string) => [`id/${encodeText(memory)}/`, `iu/${encodeText(memory)}/`] as const;

/** Prefix of all rows of one conversation. */
export const conversationRows = (conversation: number) => `c/${encodeNumber(conversation)}/`;
export const conversationKey = (conversation: number) => `c/${encodeNumber(conversation)}/n`;
export const messageRows = (conversation: number) => `c/${encodeNumber(conversation)}/m/`;
/** Where a message is within its conversation: milliseconds since 1970, then its number, which rises. */
export const messagePosition = (time: number, sequence: number) => `${encodeNumber(time)}/${encodeNumber(sequence)}`;
export const messageKey = (conversation: number, position: string) => `c/${encodeNumber(conversation)}/m/${position}`;
export const positionFromKey = (messageKey: string) => messageKey.slice("c/#########/m/".length);
export const messageIdKey = (conversation: number, id: string) => `c/${encodeNumber(conversation)}/i/${encodeText(id)}`;
export const UNFINISHED_COPIES = "cc/";
export const unfinishedCopyKey = (conversation: number) => `cc/${encodeNumber(conversation)}`;
export const conversationWorkingMemoryKey = (conversation: number) => `c/${encodeNumber(conversation)}/w`;
export const userWorkingMemoryKey = (memory: string, user: string) => `w/${encodeText(memory)}/${encodeText(user)}`;

/** Prefix of the index rows of a user, of a resource. */
export const userIndex = (memory: string, user: string) => `u/${encodeText(memory)}/${encodeText(user)}/`;
export const resourceIndex = (memory: string, resource: string) => `r/${encodeText(memory)}/${encodeText(resource)}/`;
/** The rest of a row of either index. */
export const indexEntry = (updatedAt: number, conversation: number) =>
  `${encodeNumber(updatedAt)}/${encodeNumber(conversation)}`;
/** The conversation of a row of either index. */
export const indexedConversation = (key: string) => decodeNumber(key.slice(-9));

export const userTotal = (memory: string, user: string) => `n/${encodeText(memory)}/u/${encodeText(user)}`;
export const resourceTotals = (memory: string) => `n/${encodeText(memory)}/r/`;
export const resourceTotal = (memory: string, resource: string) => `n/${encodeText(memory)}/r/${encodeText(resource)}`;

/** The index that a resource's total counts. */
export function countedIndex(resourceTotal: string): string {
  const [, memory, , resource] = resourceTotal.split("/");
  return `r/${memory}/${resource}/`;
}

/** Prefix of an agent's history. */
export const historyRows = (agent: string) => `h/${encodeText(agent)}/`;
/** Where everything older than `time` (milliseconds since 1970) ends. */
export const historyBefore = (agent: string, time: number) => `h/${encodeText(agent)}/${encodeNumber(time)}`;
export const historyKey = (agent: string, startTime: number, run: string) =>
  `h/${encodeText(agent)}/${encodeNumber(startTime)}/${encodeText(run)}`;
export const historyTotal = (agent: string) => `n/h/${encodeText(agent)}`;
/** Prefix of a user's runs in an agent's history; one of them, and the row of that run. */
export const ownHistoryRows = (agent: string, user: string) => `hu/${encodeText(agent)}/${encodeText(user)}/`;
export const ownHistoryKey = (agent: string, user: string, startTime: number, run: string) =>
  `hu/${encodeText(agent)}/${encodeText(user)}/${encodeNumber(startTime)}/${encodeText(run)}`;
export const ownHistoryTotal = (agent: string, user: string) => `n/hu/${encodeText(agent)}/${encodeText(user)}`;
export function historyKeyOfOwn(ownHistoryKey: string): string {
  const [, agent, , startTime, run] = ownHistoryKey.split("/");
  return `h/${agent}/${startTime}/${run}`;
}
export const ownKeyOf = (agent: string, user: string, historyKey: string) =>
  ownHistoryRows(agent, user) + historyKey.slice(historyRows(agent).length);
export const OPEN_RUNS = "ho/";
export const openRunKey = (run: string) => `ho/${encodeText(run)}`;

/** Prefix of what a plugin keeps in a namespace. */
export const keyvRows = (namespace: string) => `kv/${encodeText(namespace)}/`;
export const keyvKey = (namespace: string, key: string) => `kv/${encodeText(namespace)}/${encodeText(key)}`;
export const KEYV_ENDS = "kx/";
/** Everything that ends before `time`, in milliseconds since 1970, comes before this. */
export const keyvEndsBefore = (time: number) => `kx/${encodeNumber(time)}`;
export const keyvEnd = (expires: number, namespace: string, key: string) =>
  `kx/${encodeNumber(expires)}/${encodeText(namespace)}/${encodeText(key)}`;

export const taskKey = (agent: string, task: string) => `a2/${encodeText(agent)}/${encodeText(task)}`;
/** Prefix of an agent's tasks by their last change; of those of a user. */
export const taskIndex = (agent: string, user?: string) =>
  user === undefined ? `a2i/${encodeText(agent)}/` : `a2u/${encodeText(agent)}/${encodeText(user)}/`;
/** The prefix of that of every agent, and the agent of a row of it: ids of agents are text that keys hold as it is. */
export const TASK_INDEXES = "a2i/";
export const indexedAgent = (key: string): string => key.split("/")[1]!;
/** Comes after every task of an agent, and before the next agent. */
export const taskIndexEnd = (agent: string) => `${taskIndex(agent)}~`;
/** The rest of a row of either index; the first part alone is where those of a time begin. */
export const taskEntry = (updatedAt: number, task: string) => `${encodeNumber(updatedAt)}/${encodeText(task)}`;
/** The time and the task of a row of either index. Ids of tasks are text that keys hold as it is. */
export function indexedTask(key: string): { updatedAt: number; task: string } {
  const [updatedAt, task] = key.split("/").slice(-2) as [string, string];
  return { updatedAt: decodeNumber(updatedAt), task };
}
export const OPEN_TASKS = "a2o/";
export const openTaskKey = (task: string) => `a2o/${encodeText(task)}`;
export const openTask = (key: string) => key.slice(OPEN_TASKS.length);

export const EXECUTION_SEQUENCE = "s/execution";
/** Prefix of all rows of one execution. */
export const executionRows = (execution: number) => `x/${encodeNumber(execution)}/`;
export const executionKey = (execution: number) => `x/${encodeNumber(execution)}/r`;
export const journalRows = (execution: number) => `x/${encodeNumber(execution)}/j/`;
export const journalKey = (execution: number, row: number) => `x/${encodeNumber(execution)}/j/${encodeNumber(row)}`;
export const OPEN_EXECUTIONS = "xo/";
export const openExecutionKey = (execution: number) => `xo/${encodeNumber(execution)}`;
export const OWN_EXECUTION_NAMES = "xi/";
/** The row of an execution's id that a client chose: that of everybody, or that of a user. */
export const executionNameKey = (id: string, owner?: string): string =>
  owner === undefined ? `xn/${encodeText(id)}` : `xi/${encodeText(id)}/${encodeShortText(owner)}`;
export const executionNameKeys = (id: string): IdKeys => ({
  of: (owner) => executionNameKey(id, owner),
  ofUsers: () => `xi/${encodeText(id)}/`,
});
export const definitionKey = (hash: string) => `xd/${hash}`;
export const PROCESSES = "xp/";
export const processKey = (process: string) => `xp/${encodeText(process)}`;
export const STOP_REQUESTS = "xc/";
export const stopRequestKey = (execution: number) => `xc/${encodeNumber(execution)}`;

/** Prefix of the executions that rest with a status: of all, of a workflow, of a user, of a user and workflow. */
export function executionIndex(status: string, workflow?: string, user?: string): string {
  if (user === undefined) return workflow === undefined ? `xs/${status}/` : `xw/${encodeText(workflow)}/${status}/`;
  return workflow === undefined
    ? `xu/${encodeText(user)}/${status}/`
    : `xv/${encodeText(user)}/${encodeText(workflow)}/${status}/`;
}
/** The rest of a row of any of these; the first part alone is where those of a time begin. */
export const executionEntry = (createdAt: number, execution: number) =>
  `${encodeNumber(createdAt)}/${encodeNumber(execution)}`;
/** That rest, and the execution, of a row of any of these; the execution of a row of open executions too. */
export const indexedEntry = (key: string) => key.slice(-"#########/#########".length);
export const indexedExecution = (key: string) => decodeNumber(key.slice(-9));
export const WORKFLOW_INDEXES = "xw/";
/** Prefix of a workflow's index rows of all statuses; the same of one of these rows. */
export const workflowIndex = (workflow: string) => `xw/${encodeText(workflow)}/`;
export const workflowIndexOf = (key: string) => key.slice(0, key.indexOf("/", WORKFLOW_INDEXES.length) + 1);
/** Where the index rows of a workflow end. */
export const afterWorkflow = (workflowIndex: string) => `${workflowIndex}~`;

export const SEGMENTS = "th/";
export const segmentKey = (segment: string) => `th/${segment}`;
export const segmentFromKey = (segmentKey: string) => segmentKey.slice(SEGMENTS.length);
/** Segments that were sealed before `time`, in milliseconds since 1970, come before this. */
export const segmentsFrom = (time: number) => `th/${encodeNumber(time)}`;
export const segmentDataKey = (segment: string) => `td/${segment}`;
/** Prefix of the segments that hold something which began in a second. */
export const secondRows = (second: number) => `tl/${encodeNumber(second)}/`;
export const secondKey = (second: number, segment: string) => secondRows(second) + segment;
export const segmentFromSecondKey = (secondKey: string) => secondKey.slice("tl/#########/".length);
/** Prefix of the segments of a trace whose id came from a caller. */
export const foreignRows = (traceId: string) => `tf/${traceId}/`;
export const foreignKey = (traceId: string, segment: string) => `tf/${traceId}/${segment}`;
export const segmentFromForeignKey = (foreignKey: string) => foreignKey.slice("tf/".length + 32 + 1);
export const TRACE_COUNTERS = { traces: "n/t/traces", spans: "n/t/spans", size: "n/t/size" } as const;
