/** The same recorded bytes, over HTTP, to the provider `openai-compatible` and to the AI SDK's package: the parts must be the same. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, test } from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import type { LanguageModelV3, LanguageModelV3StreamPart } from "@ai-sdk/provider";
import openaiCompatible from "../../../core/models/openai-compatible/openai-compatible.ts";
import { ModelRefusal } from "../../../core/plugin/plugin.ts";
import { RECORDINGS, type Recording } from "../../support/openai-recordings.ts";
import { ask, makeProvider, settingsOf } from "../../support/providers.ts";

type Outcome = { parts: unknown[]; failure: string | null };

/** Where ours differs from the package on purpose: what ours answers, and why. */
const DIFFERENCES: Readonly<Record<string, { why: string; ours: (outcome: Outcome) => void }>> = {
  "more after [DONE]": {
    why: "the answer is complete: what comes after it is not part of it",
    ours: answers("Hello, world"),
  },
  "no empty line after the last event": {
    why: "the package leaves out such an event too, but here [DONE] is none that matters",
    ours: answers("a"),
  },
  "no end of line after the only finish reason": { why: "the event is complete", ours: answers("a") },
  "DeepSeek: usage with its own count of cached tokens": {
    why: "the package does not know the name, and counts no cached tokens",
    ours: ({ parts }) => {
      const finish = parts.at(-1) as { usage: { inputTokens: object } };
      assert.deepEqual(finish.usage.inputTokens, { total: 19, noCache: 3, cacheRead: 16 });
    },
  },
  reasoning: { why: "the name of the thought goes back", ours: carries("reasoning-end", { name: "reasoning" }) },
  "reasoning before a tool call": {
    why: "a call has the thought that led to it, as its provider may want both back",
    ours: carries("tool-call", { message: { reasoning_content: "hm" } }),
  },
  "Gemini: a tool call with a thought signature": {
    why: "the extras of a call go back as they came",
    ours: carries("tool-call", { extra_content: { google: { thought_signature: "c2ln" } } }),
  },
  "an empty event": { why: "an event without data says nothing", ours: answers("a") },
  "ended in mid-stream after empty finish reasons": {
    why: "an empty reason is none, and the answer is not complete",
    ours: fails,
  },
  "usage without choices": { why: "the package refuses an event without choices", ours: answers("a") },
  "a refusal": {
    why: "the package drops the refusal and ends as if the model had said nothing",
    ours: refuses("I cannot help."),
  },
  "a refusal in one piece": { why: "as above", ours: refuses("No.") },
  "an error event whose error is a text": {
    why: "both fail; the package says that the event is not valid",
    ours: fails,
  },
  "a completion in one piece": { why: "the package sees no event in it, and fails", ours: answers("Hello") },
  "a completion in one piece after white space": { why: "as above", ours: answers("Hello") },
  "a completion in one piece with reasoning and tool calls": {
    why: "as above",
    ours: ({ parts, failure }) => {
      assert.equal(failure, null);
      assert.deepEqual(
        parts.map((part) => (part as { type: string }).type),
        [
          "stream-start",
          "response-metadata",
          "reasoning-start",
          "reasoning-delta",
          "reasoning-end",
          "tool-input-start",
          "tool-input-delta",
          "tool-input-end",
          "tool-call",
          "finish",
        ],
      );
    },
  },
  "a role that is not the assistant's": {
    why: "the package refuses the event, which says all that is needed",
    ours: answers("a"),
  },
  "choices null": { why: "as above", ours: answers("a") },
  "a tool call whose arguments are an object": {
    why: "as above",
    ours: ({ parts }) => {
      const call = parts.find((part) => (part as { type: string }).type === "tool-call") as { input: string };
      assert.deepEqual(JSON.parse(call.input), { a: 1 });
    },
  },
};

/** The parts of a type have this metadata of the provider. */
function carries(type: string, metadata: object): (outcome: Outcome) => void {
  return ({ parts, failure }) => {
    assert.equal(failure, null);
    const part = (parts as { type: string; providerMetadata?: object }[]).find((each) => each.type === type);
    assert.deepEqual(Object.values(part?.providerMetadata ?? {}), [metadata]);
  };
}

function answers(text: string): (outcome: Outcome) => void {
  return ({ parts, failure }) => {
    assert.equal(failure, null);
    assert.equal(textOf(parts), text);
    assert.equal((parts.at(-1) as { type: string }).type, "finish");
  };
}

function refuses(words: string): (outcome: Outcome) => void {
  return ({ failure }) => assert.equal(failure, `refusal: ${words}`);
}

function fails({ failure }: Outcome): void {
  assert.notEqual(failure, null);
}

const textOf = (parts: unknown[]): string =>
  parts
    .map((part) => ((part as { type: string }).type === "text-delta" ? (part as { delta: string }).delta : ""))
    .join("");

/** Serves what the model's name says: the index of a recording, and the seed of its cuts. */
function startPlayer() {
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece) => pieces.push(piece));
    request.on("end", () => {
      const { model } = JSON.parse(Buffer.concat(pieces).toString());
      const [index, seed] = model.split("-").map(Number);
      const { body, status = 200, type = "text/event-stream", cut } = RECORDINGS[index]!;
      response.writeHead(status, { "content-type": type });
      // Each write is a chunk of its own, however many of them come in one packet.
      for (const piece of cutUp(Buffer.from(body), seed)) response.write(piece);
      if (cut) setTimeout(() => response.destroy(), 30);
      else response.end();
    });
  });
  return new Promise<{ baseURL: string; close(): void }>((resolve) =>
    server.listen(0, "127.0.0.1", () =>
      resolve({
        baseURL: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
        close: () => {
          server.close();
          server.closeAllConnections();
        },
      }),
    ),
  );
}

const WHOLE = 0;
const SINGLE_BYTES = 1;

/** Seed 0: in one piece. 1: byte by byte. Any other: at random places, the same ones each time. */
function cutUp(bytes: Buffer, seed: number): Buffer[] {
  if (seed === WHOLE) return bytes.length === 0 ? [] : [bytes];
  const pieces: Buffer[] = [];
  let state = seed;
  for (let from = 0; from < bytes.length; ) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const size = seed === SINGLE_BYTES ? 1 : 1 + ((state >>> 8) % 97);
    pieces.push(bytes.subarray(from, from + size));
    from += size;
  }
  return pieces;
}

async function outcomeOf(model: LanguageModelV3, recording: Recording): Promise<Outcome> {
  const parts: LanguageModelV3StreamPart[] = [];
  let failure: string | null = null;
  try {
    const { stream } = await model.doStream(ask("hi"));
    for await (const part of stream) {
      if (part.type === "error") throw part.error;
      parts.push(part);
    }
  } catch (thrown) {
    failure = thrown instanceof ModelRefusal ? `refusal: ${thrown.refusal}` : "failure";
  }
  const generated = new Map<string, string>();
  const json = JSON.stringify(parts, (key, value) => {
    if ((key !== "id" && key !== "toolCallId") || typeof value !== "string") return value;
    if (recording.body.includes(JSON.stringify(value)) || /^(txt|reasoning)-/.test(value)) return value;
    if (!generated.has(value)) generated.set(value, `generated ${generated.size}`);
    return generated.get(value);
  });
  return { parts: JSON.parse(json), failure };
}

describe("recorded answers of chat completions", () => {
  let player: Awaited<ReturnType<typeof startPlayer>>;
  before(async () => {
    player = await startPlayer();
  });
  after(() => player.close());

  test("there are at least 60 of them, and each has a name of its own", () => {
    assert.ok(RECORDINGS.length >= 60);
    assert.equal(new Set(RECORDINGS.map(({ title }) => title)).size, RECORDINGS.length);
    for (const title of Object.keys(DIFFERENCES))
      assert.ok(
        RECORDINGS.some((each) => each.title === title),
        title,
      );
  });

  RECORDINGS.forEach((recording, index) => {
    const difference = DIFFERENCES[recording.title];
    const title =
      difference === undefined ? "as the AI SDK's package reads it" : `unlike the package, since ${difference.why}`;
    test(`openai-compatible reads "${recording.title}" ${title}, however its bytes are cut`, async (context) => {
      const { baseURL } = player;
      const provider = await makeProvider(context, openaiCompatible, { baseURL });
      const ours = (seed: number) => outcomeOf(provider.languageModel(`${index}-${seed}`, settingsOf()), recording);
      const outcome = await ours(WHOLE);
      if (difference === undefined) {
        const reference = createOpenAICompatible({ name: "demo", baseURL, includeUsage: true });
        assert.deepEqual(outcome, await outcomeOf(reference.languageModel(`${index}-${WHOLE}`), recording));
      } else difference.ours(outcome);
      const seeds = [2, 3, 5, 8, ...(recording.body.length < 4096 ? [SINGLE_BYTES] : [])];
      for (const seed of seeds) assert.deepEqual(await ours(seed), outcome, `cut with seed ${seed}`);
    });
  });
});
