/** What a kept run has said, as it is read at another process over one PostgreSQL while its model is silent. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import type { Served } from "../support/command-line.ts";
import { EventReader } from "../support/event-reader.ts";
import { HELD_PROVIDER } from "../support/held-model.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { until } from "../support/probe.ts";
import type { Loose } from "../support/served-upstream.ts";
import { holdingFolder, twoProcesses } from "../support/two-processes.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
after(() => server?.close());

const { folder, hold, release } = await holdingFolder();
const { one, other } = await twoProcesses(server, folder, {
  plugins: { "providers/held.mjs": HELD_PROVIDER },
  providers: { held: { use: "held", folder } },
  agents: { talker: { model: "held/any", memory: false } },
});

const isAsked = (question: string) =>
  until(
    () =>
      existsSync(join(folder, "asked")) && readFileSync(join(folder, "asked"), "utf8").split("\n").includes(question),
    `the question ${question}`,
  );
const post = (to: Served, path: string, body: object): Promise<Loose> =>
  fetch(to.url + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
async function begin(input: string): Promise<string> {
  const reply = await post(one, "/agents/talker/text", { input, options: { background: true } });
  await isAsked(input);
  return ((await reply.json()) as Loose).data.runId;
}
const said = ({ text }: EventReader) => /half \d+ /.test(text);

/** Ways to read at the other process what a run says that began in the first. */
const READS: Record<string, (question: string) => Promise<string>> = {
  "GET /agents/:id/runs/:runId/stream": async (question) => `/agents/talker/runs/${await begin(question)}/stream`,
  "GET /agents/:id/runs/:runId/stream?format=chat": async (question) =>
    `/agents/talker/runs/${await begin(question)}/stream?format=chat`,
  "GET /v1/responses/:id?stream=true": async (question) => {
    const reply = await post(one, "/v1/responses", { model: "talker", input: question, background: true });
    await isAsked(question);
    return `/v1/responses/${((await reply.json()) as Loose).id}?stream=true`;
  },
};

for (const [index, [read, path]] of Object.entries(READS).entries())
  test(`${read} at another process sends what was said before the model fell silent, to who came while it is`, {
    skip,
  }, async () => {
    const question = `q${index}`;
    hold(`hold ${question}`);
    const reader = new EventReader(other.url + (await path(question)));
    await reader.until(() => said(reader));
    assert.ok(!reader.text.includes("rest"));
    release(`hold ${question}`);
    await reader.end();
    assert.match(reader.text, /rest \d+/);
  });

test("GET /agents/:id/runs/:runId/stream at another process: what was said is there although its process is killed, then step-restart and the whole answer", {
  skip,
}, async () => {
  hold("hold killed");
  const reader = new EventReader(`${other.url}/agents/talker/runs/${await begin("killed")}/stream`);
  await reader.until(() => said(reader));
  await one.interrupt("SIGKILL");
  await reader.until(() => reader.text.includes("step-restart"));
  release("hold killed");
  await reader.end();
  const types = reader.events.map(({ type }) => type);
  const words = reader.events.slice(types.indexOf("step-restart")).filter(({ type }) => type === "text-delta");
  assert.match(words.map(({ delta }) => delta).join(""), /^half (\d+) rest \1$/);
  assert.equal(types.at(-1), "finish");
  assert.deepEqual(
    reader.sent.map(({ id }) => Number(id)),
    reader.sent.map((_, number) => number + 1),
  );
});
