/** Agent cards, and the A2A protocol that they describe. */
import type { Card } from "../../a2a/cards.ts";
import type { Service } from "../../app/service.ts";
import { JSON_TYPE } from "../../http/encode.ts";
import type { Context, PageReply, RawReply } from "../../http/route.ts";
import { notFound } from "../../lib/errors.ts";
import { Serialized } from "../../lib/serialized.ts";
import { findAgent } from "./agents.ts";
import { get, post, rpcErrors, show } from "./row.ts";

/** How long a card may be cached: it changes only with the manifest. */
const CARD_MAX_AGE_SECONDS = 300;

/** Keys are public, and the same for everybody. */
const KEYS_HEADERS = ["cache-control", `public, max-age=${CARD_MAX_AGE_SECONDS}`];

/** Clients of 0.3 say no version: they find its fields beside. */
function findCard({ service, client, headers }: Context<Service>, id: string): Card {
  const isDual = !/^\s*1\./.test(headers["a2a-version"] ?? "");
  return service.cardOf(findAgent(service, id).id, isDual, service.originFor(client))!;
}

/** A card, which only the client may cache: discovery may need a key, so shared caches must not keep it. */
function cardPage(call: Context<Service>, id: string): PageReply {
  const known = call.headers["if-none-match"];
  const { json, tag } = findCard(call, id);
  const caching = ["cache-control", `private, max-age=${CARD_MAX_AGE_SECONDS}`, "vary", "a2a-version"];
  const headers = ["etag", tag, ...caching];
  const same = known?.split(",").some((each) => each.trim().replace(/^W\//, "") === tag) ?? false;
  return same ? { status: 304, body: "", headers } : { body: json, headers };
}

/** The reply to a body that is not JSON: an error of JSON-RPC 2.0. */
const malformed = (message: string): RawReply => ({
  status: 200,
  headers: ["content-type", JSON_TYPE],
  body: JSON.stringify({ jsonrpc: "2.0", id: null, error: { code: -32700, message } }),
});

const BARE = { group: "discovery", readsHeaders: true, output: { bare: "AgentCard", type: JSON_TYPE } } as const;

const bareCard = (path: string, operation: string, summary: string) =>
  get(path, operation, summary, { ...BARE, handle: ({ params }, call) => cardPage(call, params.id!) });

export const A2A_ROUTES = [
  show("/agents/:id/card", "a2a.card", "The A2A card of an agent", {
    output: "AgentCard",
    readsHeaders: true,
    handle: ({ params }, call) => new Serialized(findCard(call, params.id!).json),
  }),
  get("/.well-known/agent-card.json", "a2a.firstCard", "The A2A card of the first agent", {
    ...BARE,
    description: "Where A2A clients look for it: the card alone, without an envelope.",
    failures: ["not_found"],
    handle(_input, call) {
      const first = call.service.agents.keys().next().value;
      if (first === undefined) throw notFound("the manifest has no agents");
      return cardPage(call, first);
    },
  }),
  bareCard("/.well-known/:id/agent-card.json", "a2a.knownCard", "The A2A card of an agent, without an envelope"),
  bareCard("/a2a/:id/.well-known/agent-card.json", "a2a.ownCard", "The A2A card of an agent, below its own address"),
  show("/.well-known/jwks.json", "a2a.keys", "The keys that sign push notifications", {
    description:
      "Receivers of A2A push notifications check signatures with them. Always public. 404 unless `server.push.enabled`.",
    failures: ["not_found"],
    output: { bare: "SigningKeys", type: JSON_TYPE },
    async handle(_input, { service }) {
      const { pushes } = service.a2a;
      if (!pushes.isEnabled) throw notFound("push notifications are not enabled");
      return { body: JSON.stringify(await pushes.publicKeys()), headers: KEYS_HEADERS };
    },
  }),
  post("/a2a/:id", "a2a.call", "Call an agent over A2A", {
    description:
      "JSON-RPC of A2A 1.0, and of 0.3 without the header `A2A-Version`. Replies and errors are those of JSON-RPC, with status 200; methods that stream reply with server-sent events.",
    body: "PeerRequest",
    // Not validated here: every problem of the body is reported as a JSON-RPC error.
    checks: { body: () => true },
    readsHeaders: true,
    output: { raw: [JSON_TYPE, "text/event-stream"], malformed },
    // `ContentTypeNotSupportedError`.
    errors: rpcErrors(-32005),
    async handle({ params, body }, call) {
      const { service } = call;
      const began = performance.now();
      const agent = findAgent(service, params.id!);
      return service.a2a.answer({ agent, card: () => findCard(call, agent.id).json, body, began }, call);
    },
  }),
];
