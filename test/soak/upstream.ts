/**
 * A model behind HTTP, as a process of its own: OpenAI's wire format, tool calls and JSON when asked for, and the faults that
 * providers have. Each text begins `answer N #S`: N is the number that the question carries, S one that no other answer has.
 */
import { createRandom } from "../crash/model.ts";
import {
  calls,
  cutsAfter,
  failsAfter,
  failure,
  type Reply,
  says,
  saysJson,
  stallsAfter,
  stallsBeforeHead,
  stallsBeforeText,
  startOpenAIUpstream,
  type UpstreamRequest,
} from "../support/openai-upstream.ts";

const random = createRandom(Number(process.argv[2]));
/** How many of a hundred calls go wrong. */
const FAULTS = 14;

let serial = 0;

const faults = (beginning: string): (() => Reply)[] => [
  () => cutsAfter(""),
  () => cutsAfter(beginning),
  stallsBeforeHead,
  stallsBeforeText,
  () => stallsAfter(beginning),
  () => failsAfter(beginning),
  () => failure(429, { retryAfter: 0 }),
  () => failure(500),
  () => ({ steps: [{ raw: "data: {not json\n\n" }, { done: true }] }),
  () => ({ steps: [{ text: beginning }, { raw: `\0\xff${"x".repeat(5_000)}\n\n` }, { done: true }] }),
  () => ({ status: 200, json: "<html>" }),
];

function answer({ lastUserText, toolOutputs, body }: UpstreamRequest): Reply {
  const [, number = "?", how = ""] = /ask (\d+)(?: (\w+))?/.exec(lastUserText) ?? [];
  serial += 1;
  const text = `answer ${number} #${serial}`;
  if (how === "slow") return says(`${text} end`, { chunks: 20, delay: 100 });
  if (random() * 100 < FAULTS) {
    const choices = faults(text);
    return choices[Math.floor(random() * choices.length)]!();
  }
  if (body.response_format !== undefined) return saysJson({ number: Number(number), serial }, { chunks: 3 });
  if (how === "tool" && toolOutputs.length === 0) {
    return calls([{ name: "lookup_order", input: { orderId: "A-1002" } }]);
  }
  if (how === "long") return says(`${text} ${"word ".repeat(60_000)} end`, { chunks: 300 });
  return says(`${text} ${"word ".repeat(random() * 40)} end`, {
    chunks: 1 + Math.floor(random() * 8),
    delay: random() * 4,
  });
}

const upstream = await startOpenAIUpstream();
upstream.fallback((request) => {
  // Nobody looks back at what was asked.
  upstream.requests.length = 0;
  return answer(request);
});
console.log(`upstream listens on ${upstream.baseURL}: ready`);
process.on("SIGTERM", () => process.exit(0));
