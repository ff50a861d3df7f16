/** `POST /v1/responses`: an agent answers items, and stored responses can be continued. */
import type { CreateResponseRequest } from "../../generated/types.ts";
import type { Agent } from "../agents/agent.ts";
import type { RunCall } from "../agents/run/caller.ts";
import type { ProtocolRun } from "../agents/run-requests.ts";
import type { RawReply } from "../http/route.ts";
import { invalid, messageOf, ServiceError, unavailable } from "../lib/errors.ts";
import { inOwnWords, jsonReply } from "./errors.ts";
import type { ResponseResource } from "./resource.ts";
import { ResponseEvents } from "./response-events.ts";
import { FIELDS, type NewResponse, readResponseRequest } from "./response-request.ts";
import { MAX_STORED_CHARACTERS } from "./response-rows.ts";
import { responseStream } from "./response-stream.ts";
import type { Responses } from "./responses.ts";
import { hearRun, streamTranslated } from "./run-sink.ts";

type Body = CreateResponseRequest;

export async function createResponse(agent: Agent, body: Body, call: RunCall, responses: Responses): Promise<RawReply> {
  const { store, background, stream } = body;
  if (background === true && store === false)
    throw invalid("background must not be true where store is false: nobody could read the response");
  const principal = responses.principalOf(call);
  const begun = await readResponseRequest(body, principal, responses, call);
  const { record, output, asked, messages } = begun;
  const { resource } = record;
  if (background === true) {
    // It is read later: with what came of the answer.
    const inBackground = { ...asked, approves: undefined, options: { ...asked.options, background: true } };
    const run = inOwnWords(FIELDS, messages, () => agent.prepare(inBackground, call));
    const stored = await responses.background.begin({ ...record, run: readingOf(run) }, run.kept!, principal);
    return stream === true ? responses.follow(resource.id, {}, principal) : jsonReply(stored.resource);
  }
  const streams = stream === true;
  const run = inOwnWords(FIELDS, messages, () => agent.prepare({ ...asked, streams }, call));
  const finish = () => finished(begun, run, responses);
  if (streams) {
    const events = responseStream(new ResponseEvents(resource, output), finish);
    const isShared = call.keyed !== undefined && resource.store;
    return streamTranslated(run, events, isShared ? responses.storing : undefined);
  }
  await hearRun(run, (said) => output.of(said));
  return jsonReply(shown(await finish(), body));
}

const OWN_CALLS = "penstock:tool_call";

/** Hides items that clients may not know: released clients refuse a whole reply with such items, but skip them in streams. */
function shown(resource: ResponseResource, { include }: Body): ResponseResource {
  if (include?.includes(OWN_CALLS)) return resource;
  return { ...resource, output: resource.output.filter(({ type }) => type !== OWN_CALLS) };
}

/** How the parts of a run are read later. */
const readingOf = ({ isJson, clientTools }: ProtocolRun) => ({ isJson, clientTools });

/** The resource of a run that has ended, or waits; it is stored if requested. */
export async function finished(
  { record, output }: NewResponse,
  run: ProtocolRun,
  { rows }: Responses,
): Promise<ResponseResource> {
  const { end, items, usage } = output;
  if (end === null) throw unavailable("the run was stopped");
  const whole = { ...record.resource, ...end, output: items, usage };
  if (!whole.store) return whole;
  const stored = { ...record, resource: whole, ...(output.waits && { run: readingOf(run), waits: true as const }) };
  const text = JSON.stringify(stored);
  if (text.length > MAX_STORED_CHARACTERS) return { ...whole, store: false };
  try {
    return (await rows.createOnce(stored, text)).record.resource;
  } catch (cause) {
    // The request must not be repeated, because the run has happened.
    const message = `the response could not be stored: ${messageOf(cause)}`;
    throw new ServiceError("unavailable", message, { headers: { "x-should-retry": "false" }, cause });
  }
}
