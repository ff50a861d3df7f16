/** A program that uses the client of typed-client.test.ts, in ways that must compile and in ways that must not. */
export const USES = `import { type Client, createClient, type ExecutionResult, PenstockError, unwrap } from "./service.js";

const client: Client = createClient({
  baseUrl: "https://desk.example",
  token: async () => "token",
  headers: { "x-shop": "north" },
  fetch: (request) => fetch(request),
});

export async function right(signal: AbortSignal): Promise<string[]> {
  const found: string[] = [];
  const answer = await client.agent("assistant").text({ input: "Hi", options: { temperature: 0.2 } }, { signal });
  found.push(answer.text, answer.finishReason);
  const stream = client.agent("slow").stream({ input: [{ role: "user", content: "Hi" }] }, { signal });
  for await (const part of stream) {
    if (part.type === "text-delta") found.push(part.delta);
    if (part.type === "tool-call") found.push(part.toolName);
  }
  const number: number = stream.lastEventId;
  const schema = { type: "object", properties: { name: { type: "string" } } };
  const made = await client.agent("assistant").object<{ name: string }>({ input: "Who?", schema });
  found.push(made.name, String(number));
  for await (const event of client.agent("assistant").streamObject<{ name: string }>({ input: "Who?", schema }))
    if (event.type === "final") found.push(event.finalObject.name);
  for await (const chunk of client.agent("assistant").chat({ id: "c", messages: [] }))
    if (chunk.type === "text-delta") found.push(chunk.delta);
  const { runId } = await client.agent("assistant").start({ input: "Hi" });
  for await (const part of client.agent("assistant").run(runId).events({ after: 3, signal })) found.push(part.type);

  await client.tool("sum").execute({ a: 1, b: 2 }, { idempotencyKey: "k", context: { language: "en" } });
  await client.tool("look:up").execute({ at: { city: "Oslo", within: { city: "Norway" } }, unit: "km" });
  await client.tool("github_search").execute({ whatever: [1, 2] });

  const result: ExecutionResult<"order"> = await client.workflow("order").execute({ input: { item: "desk", amount: 2 } });
  if (result.status === "completed") found.push(result.result.total.toFixed(2));
  else found.push(result.suspension?.reason ?? "");
  for await (const event of client.workflow("order").stream({ input: { item: "desk", amount: 2 } })) {
    if (event.type === "step-start") found.push(event.from);
    if (event.type === "workflow-result" && event.status === "completed") found.push(String(event.result.approved));
  }
  await client.workflow("order").execution("e").resume({ resumeData: { approved: true } });
  await client.workflow("letter").execution("e").resume({ resumeData: "anything" });
  await client.workflow("letter").execute({ input: [1, "anything"] });
  for (const { approvalId } of await client.approvals.list({ status: "open" }))
    await client.approvals.answer(approvalId, { approved: false });
  const { conversations } = await unwrap(client.api.GET("/api/memory/conversations", { params: { query: { limit: 5 } } }));
  found.push(...conversations.map(({ id }) => id));
  return found;
}

export function problem(error: unknown): string {
  return error instanceof PenstockError ? \`\${error.code} \${error.status} \${error.approvalId ?? ""}\` : String(error);
}

export async function wrong(): Promise<void> {
  // @ts-expect-error no agent has this id
  client.agent("assistnat");
  // @ts-expect-error the input is missing
  await client.agent("assistant").text({ options: {} });
  // @ts-expect-error temperature is a number
  await client.agent("assistant").text({ input: "Hi", options: { temperature: "warm" } });
  // @ts-expect-error a run in the background has no text: start() is for it
  await client.agent("assistant").text({ input: "Hi", options: { background: true } });
  for await (const part of client.agent("assistant").stream({ input: "Hi" })) {
    // @ts-expect-error no part has this type; errors are thrown
    if (part.type === "error") return;
    // @ts-expect-error only some parts have a delta
    part.delta;
  }
  // @ts-expect-error no tool has this name
  client.tool("sume");
  // @ts-expect-error b is missing
  await client.tool("sum").execute({ a: 1 });
  // @ts-expect-error c is no property of the input
  await client.tool("sum").execute({ a: 1, b: 2, c: 3 });
  // @ts-expect-error the unit is one of two
  await client.tool("look:up").execute({ at: { city: "Oslo" }, unit: "yard" });
  // @ts-expect-error within has a city as well
  await client.tool("look:up").execute({ at: { city: "Oslo", within: {} }, unit: "km" });
  // @ts-expect-error no workflow has this id
  client.workflow("orders");
  // @ts-expect-error the amount is a number
  await client.workflow("order").execute({ input: { item: "desk", amount: "two" } });
  const result = await client.workflow("order").execute({ input: { item: "desk", amount: 2 } });
  // @ts-expect-error there is no result before the status says so
  result.result.total;
  if (result.status === "completed") {
    // @ts-expect-error the manifest's schema has no such property
    result.result.sum;
  }
  // @ts-expect-error approved is a boolean
  await client.workflow("order").execution("e").resume({ resumeData: { approved: "yes" } });
  // @ts-expect-error the answer is missing
  await client.approvals.answer("a", { reason: "?" });
  // @ts-expect-error no endpoint has this path
  await client.api.GET("/agent");
  // @ts-expect-error the address is missing
  createClient({});
}
`;
