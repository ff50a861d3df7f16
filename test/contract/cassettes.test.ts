/** `serve --record` and `--replay`: what providers answered over HTTP, kept in files and given again without them. */
import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { gzipSync } from "node:zlib";
import { Agent, type Dispatcher } from "undici";
import { parse } from "yaml";
import { readCassette, writeCassette } from "../../core/models/cassettes/cassette.ts";
import { recordCassettes, replayCassettes } from "../../core/models/cassettes/intercept.ts";
import { silent } from "../support/agents.ts";
import { PENSTOCK, penstock, serve } from "../support/command-line.ts";
import { calls, failure, says, startOpenAIUpstream } from "../support/openai-upstream.ts";
import { EXAMPLES, pluginFolder } from "../support/plugin-folder.ts";
import { dataOf, errorOf } from "../support/served-upstream.ts";
import { manifestWith, parseEvents, startService, type TestService } from "../support/service.ts";

/** For hangs only. */
const HANG_MS = 60_000;
const KEY = "sk-a-key-that-nobody-may-see";
/** What redaction hides, and what the environment has under the name of a secret. */
const PRIVATE = ["ada@example.com", "4111 1111 1111 1111", "hunter22", "env-secret-7f3a"];

async function folderFor(t: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "penstock-cassettes-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** An answer is whole when its provider closes it, which may be after its client has it. */
async function recorded(folder: string, answers: number): Promise<Record<string, string>> {
  for (const begin = Date.now(); ; await new Promise((done) => setTimeout(done, 10))) {
    const files = await filesIn(folder);
    const count =
      Object.values(files)
        .join("\n")
        .match(/^ {2}- status: /gm)?.length ?? 0;
    if (count >= answers) return files;
    assert.ok(Date.now() - begin < HANG_MS, `${count} of ${answers} answers are recorded`);
  }
}

async function filesIn(folder: string): Promise<Record<string, string>> {
  const found = await readdir(folder, { recursive: true }).catch((): string[] => []);
  const names = found.filter((name) => name.endsWith(".yaml")).sort();
  const texts = await Promise.all(names.map((name) => readFile(join(folder, name), "utf8")));
  return Object.fromEntries(names.map((name, index) => [name, texts[index]!]));
}

/** Two agents on one upstream: over the house's own client, and over a package of the AI SDK. */
function manifestFor(baseURL: string, apiKey: string) {
  const options = { baseURL, apiKey, name: "package", queryParams: { "api-version": "1", code: apiKey } };
  const own = { use: "openai-compatible", baseURL, apiKey, queryParams: options.queryParams, retries: 1 };
  const agent = { name: "A", description: "d", instructions: "Be brief.", memory: false, tools: ["add"] };
  return manifestWith(
    {},
    {
      providers: { demo: { use: "scripted" }, own, package: { use: "@ai-sdk/openai-compatible", options, retries: 1 } },
      tools: { add: { use: "add" } },
      agents: { own: { ...agent, model: ["own/m", "demo/echo"] }, package: { ...agent, model: "package/m" } },
    },
  );
}

const ask = (service: TestService, agent: string, input: string) => service.post(`/agents/${agent}/text`, { input });

async function deltas(service: TestService, agent: string, input: string): Promise<unknown[]> {
  const text = await (await service.post(`/agents/${agent}/stream`, { input })).text();
  const events = parseEvents(text).map(({ data }) => (data.startsWith("{") ? JSON.parse(data) : {}));
  return events.filter(({ type }) => type === "text-delta").map(({ text, delta }) => text ?? delta);
}

for (const agent of ["own", "package"]) {
  test(`serve --record and --replay: a provider (${agent}) that is gone answers as it did, with tool calls, streams and failures`, async (t) => {
    const folder = await folderFor(t);
    const upstream = await startOpenAIUpstream();
    const recording = await startService(t, manifestFor(upstream.baseURL, KEY), { record: folder });
    upstream.replies(calls([{ name: "add", input: { a: 2, b: 3 } }]), says("It is 5."));
    const sum = await dataOf(ask(recording, agent, "What is 2 + 3?"));
    upstream.replies(says("Grüße, 🌊 and more\r\n", { chunks: 5 }));
    const streamed = await deltas(recording, agent, "Say something");
    upstream.replies(failure(429, { retryAfter: 0 }), says("At last."));
    const retried = await dataOf(ask(recording, agent, "Are you there?"));
    assert.deepEqual([sum.text, retried.text], ["It is 5.", "At last."]);
    assert.ok(streamed.length > 1);
    const { length } = upstream.requests;
    assert.equal(length, 5);
    const files = await recorded(folder, length);
    await upstream.close();

    assert.equal(Object.keys(files).length, 4, "one file for each request, its retry included");
    for (const [name, text] of Object.entries(files)) {
      assert.match(name, new RegExp(`^${agent}/m-[0-9a-f]{12}\\.yaml$`));
      assert.ok(!text.includes(KEY) && !/authorization/i.test(text), text);
      assert.match(text, /path: \/v1\/chat\/completions\?api-version=1&code=\*\*\*/);
    }

    const replaying = await startService(t, manifestFor(upstream.baseURL, "another-key-than-then"), { replay: folder });
    const again = await dataOf(ask(replaying, agent, "What is 2 + 3?"));
    assert.deepEqual([again.text, again.usage], [sum.text, sum.usage]);
    assert.deepEqual(await deltas(replaying, agent, "Say something"), streamed);
    assert.equal((await dataOf(ask(replaying, agent, "Are you there?"))).text, "At last.");
    assert.equal(upstream.requests.length, length);

    const { status, error } = await errorOf(ask(replaying, agent, "Are you away?"));
    assert.equal(status, 500, error);
    assert.match(error, /not recorded: .* has no answer to POST \/v1\/chat\/completions/);
    assert.match(error, /differs in body\.messages\[1\]\.content: "Are you away\?" was sent, "Are you there\?" is rec/);
  });
}

test("serve --record: what a provider is configured with from the environment is not in the files, under whatever name", async (t) => {
  const folder = await folderFor(t);
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  const env = { CODE: "a code/of+access", HEADER: "a-header-of-access" };
  const manifest = manifestFor(upstream.baseURL, KEY) as { providers: Record<string, object> };
  manifest.providers.own = {
    use: "openai-compatible",
    baseURL: upstream.baseURL,
    // biome-ignore-start lint/suspicious/noTemplateCurlyInString: the manifest's own syntax
    queryParams: { "api-version": "2026-01-01", code: "${CODE}" },
    headers: { "x-gateway": "${HEADER}" },
    // biome-ignore-end lint/suspicious/noTemplateCurlyInString: the manifest's own syntax
  };
  const recording = await startService(t, manifest, { record: folder, env });
  const echo = `${env.CODE} ${encodeURIComponent(env.CODE)} ${env.HEADER}`;
  upstream.replies(says(echo));
  assert.equal((await dataOf(ask(recording, "own", "Which code?"))).text, echo);
  assert.match(upstream.requests[0]!.path, /code=a\+code%2Fof%2Baccess$/);
  const text = Object.values(await recorded(folder, 1)).join();
  for (const secret of ["of+access", "of%2Baccess", env.HEADER]) assert.ok(!text.includes(secret), text);
  assert.match(text, /api-version=2026-01-01&code=\*\*\*/);
  const replaying = await startService(t, manifest, { replay: folder, env: { CODE: "x", HEADER: "y" } });
  await dataOf(ask(replaying, "own", "Which code?"));
  assert.equal(upstream.requests.length, 1);
});

test("serve --record: the same calls make the same files, whatever port the provider has", async (t) => {
  const made: unknown[] = [];
  for (const _ of [1, 2]) {
    const folder = await folderFor(t);
    const upstream = await startOpenAIUpstream();
    const service = await startService(t, manifestFor(upstream.baseURL, KEY), { record: folder });
    await dataOf(ask(service, "own", "Hello"));
    await dataOf(ask(service, "package", "Hello"));
    // Where an answer is cut is up to the machine.
    const whole = (key: string, value: unknown) => (key === "chunks" ? (value as string[]).join("") : value);
    const files = Object.entries(await recorded(folder, 2));
    made.push(files.map(([name, text]) => [name, JSON.parse(JSON.stringify(parse(text)), whole)]));
    await upstream.close();
  }
  assert.deepEqual(made[0], made[1]);
});

test("--record and --replay: the chunks of an answer are the same bytes, a cut character and a secret in two pieces included; a compressed one is kept as text", async (t) => {
  const folder = await folderFor(t);
  const wave = Buffer.from("🌊");
  const pieces = [Buffer.from("data: a\r\n\r\n"), wave.subarray(0, 2), wave.subarray(2), Buffer.from([0xff, 0])];
  let send = pieces;
  let encoding = {};
  const server = createServer(async (_, response) => {
    const headers = { "content-type": "text/event-stream", "set-cookie": KEY, "x-request-id": "1", ...encoding };
    response.writeHead(200, headers);
    for (const piece of send) {
      response.write(piece);
      await new Promise((done) => setTimeout(done, 50));
    }
    response.end();
  }).listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  t.after(() => server.close());
  const agent = new Agent();
  t.after(() => agent.destroy());
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const through = (dispatcher: Dispatcher, path: string) =>
    new Promise<Buffer[]>((resolve, reject) => {
      const got: Buffer[] = [];
      const headers = { authorization: `Bearer ${KEY}` };
      dispatcher.dispatch(
        { origin, path, method: "POST", headers, body: "{}" },
        {
          onRequestStart: () => undefined,
          onResponseStart: () => undefined,
          // A reader that pauses after each chunk.
          onResponseData(controller, chunk) {
            got.push(Buffer.from(chunk));
            controller.pause();
            setImmediate(() => controller.resume());
          },
          onResponseEnd: () => resolve(got),
          onResponseError: (_, error) => reject(error),
        },
      );
    });
  const recorder = agent.compose(recordCassettes(folder, silent)("p"));
  const came = await through(recorder, "/bytes");
  assert.deepEqual(Buffer.concat(came), Buffer.concat(pieces));
  send = [Buffer.from(`no such key: ${KEY.slice(0, 9)}`), Buffer.from(KEY.slice(9))];
  await through(recorder, "/secret");
  send = [gzipSync(`event: say\ndata: {"text":"mail ${PRIVATE[0]}"}\n\n`)];
  encoding = { "content-encoding": "gzip" };
  await through(recorder, "/packed");
  assert.ok(
    !Object.values(await filesIn(folder))
      .join()
      .includes(KEY.slice(9)),
  );

  const player = agent.compose(replayCassettes(folder)("p"));
  assert.deepEqual(await through(player, "/bytes"), came);
  assert.equal(Buffer.concat(await through(player, "/secret")).toString(), "no such key: ***");
  const packed = Buffer.concat(await through(player, "/packed")).toString();
  assert.equal(packed, 'event: say\ndata: {"text":"mail [redacted]"}\n\n');
  await assert.rejects(through(player, "/else"), /differs in path: "\/else" was sent/);
  await assert.rejects(through(agent.compose(replayCassettes(folder)("q")), "/bytes"), /nothing is recorded of this/);
});

test("a cassette keeps every text as it is: line ends, blanks, words of YAML, control characters", () => {
  const texts = [
    "",
    " ",
    "\n",
    "\n\n",
    " a\n",
    "a \n b",
    "a\r\n\r\n",
    "\ttab\n",
    "- x",
    "# x",
    "null",
    "1e3",
    "~",
    "---\n",
  ];
  const chunks = [
    ...texts,
    "...\n",
    "\u2028\u0085\ufeff\n",
    "\0\u0001\x7f",
    "%a: &b *c !d",
    "data: {}\n\ndata: x\n\n\n",
  ];
  const request = { provider: "p", method: "POST", path: "/", body: { chunks, none: null, big: 1.5e300 } };
  const cassette = { request, answers: [{ status: 200, headers: {}, chunks }] };
  assert.deepEqual(readCassette(writeCassette(cassette)), cassette);
});

test("penstock serve --record DIR: makes the folder and writes what was answered, to be read by people", async (t) => {
  const folder = await folderFor(t);
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  const config = join(folder, "service.yaml");
  await writeFile(config, JSON.stringify(manifestFor(upstream.baseURL, KEY)));
  const command = [PENSTOCK, "serve", "-c", config, "--plugins", EXAMPLES, "-p", "0"];
  const cassettes = join(folder, "made/by/record");
  const { url } = await serve(t, [process.execPath, ...command, "--record", cassettes]);
  const headers = { "content-type": "application/json" };
  await dataOf(fetch(`${url}/agents/own/text`, { method: "POST", headers, body: '{"input":"Hello"}' }));
  const [text = ""] = Object.values(await recorded(cassettes, 1));
  assert.match(text, /^request:\n {2}provider: own\n {2}method: POST\n {2}path: /);
  assert.match(text, /^ {6}- role: user\n {8}content: Hello$/m);
  assert.match(
    text,
    /^ {2}- status: 200\n {4}headers:\n {6}content-type: text\/event-stream.*\n {4}chunks:\n {6}- \|/m,
  );
});

test("serve --replay: a folder that is not there, a file that is no cassette, and --record beside it are told before it listens", async (t) => {
  const folder = await folderFor(t);
  const none = join(folder, "none");
  await assert.rejects(startService(t, manifestWith(), { replay: none }), /none/);
  const both = await penstock(["serve", "-p", "0", "--replay", folder, "--record", folder], { env: { PORT: "0" } });
  assert.match(both.stderr, /--record and --replay exclude each other/);
  await writeFile(join(folder, "own.yaml"), "request: { provider: p, method: POST, path: / }\n");
  await assert.rejects(
    startService(t, manifestWith(), { replay: folder }),
    /own\.yaml is not a cassette: answers must be a list that is not empty/,
  );
});

/** A tool that sends what it is told to send. */
const SENDS = `export default { kind: "tool", name: "send", parameters: { type: "object" },
  execute: (input) => ({ sent: input }) };`;

for (const agent of ["own", "package"]) {
  test(`serve --record (${agent}): prompts, answers, arguments and streams are redacted as traces are, for their owner alone, and replay finds them`, async (t) => {
    const before = process.umask(0o022);
    t.after(() => void process.umask(before));
    const folder = join(await folderFor(t), "cassettes");
    const upstream = await startOpenAIUpstream();
    t.after(() => upstream.close());
    const manifest = manifestFor(upstream.baseURL, KEY) as Record<string, Record<string, Record<string, unknown>>>;
    manifest.tools = { send: { use: "send" } };
    for (const each of Object.values(manifest.agents!)) each.tools = ["send"];
    const plugins = [pluginFolder(t, { "tools/send.mjs": SENDS })];
    const env = { MAIL_PASSWORD: PRIVATE[3] };
    const recording = await startService(t, manifest, { record: folder, plugins, env });
    const said = `I wrote to ${PRIVATE[0]}: pay with ${PRIVATE[1]}, password: ${PRIVATE[2]}, and ${PRIVATE[3]}.`;
    const prompts = ["Send it", "Say it", "Stream it"].map((what) => `${what}: ${said}`);
    const input = { to: PRIVATE[0], password: PRIVATE[2], card: PRIVATE[1], key: PRIVATE[3] };
    upstream.replies(calls([{ name: "send", input }]), says(said), says(said), says(said, { chunks: 20 }));
    const run = async (service: TestService) => [
      (await dataOf(ask(service, agent, prompts[0]!))).text,
      (await dataOf(ask(service, agent, prompts[1]!))).text,
      (await deltas(service, agent, prompts[2]!)).join(""),
    ];
    assert.deepEqual(await run(recording), [said, said, said], "who records gets what was said");
    const files = await recorded(folder, 4);
    for (const [name, text] of Object.entries(files)) {
      for (const secret of PRIVATE) assert.ok(!text.includes(secret), `${name} has ${secret}`);
      const pieces = [...text.matchAll(/"content":\s*"((?:[^"\\]|\\.)*)"/g)].map(([, piece]) => piece).join("");
      for (const secret of PRIVATE) assert.ok(!pieces.includes(secret), `${name} has ${secret} in pieces`);
      assert.equal((await stat(join(folder, name))).mode & 0o777, 0o600);
    }
    assert.equal((await stat(folder)).mode & 0o777, 0o700);
    const clean = "I wrote to [redacted]: pay with [redacted], password: [redacted], and ***.";
    const replaying = await startService(t, manifest, { replay: folder, plugins, env });
    assert.deepEqual(await run(replaying), [clean, clean, clean]);
  });
}
