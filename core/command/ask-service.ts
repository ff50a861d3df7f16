/** Has a running service do what a command cannot do beside it. */
import type { CommandEvent, RunCommandRequest } from "../../generated/types.ts";
import { CONSOLE_KEY_VARIABLE } from "../auth/credentials.ts";
import { messageOf } from "../lib/errors.ts";
import type { NamedFile } from "../storage/sqlite-backup.ts";
import { fileId } from "../storage/sqlite-lock.ts";
import { type Invocation, say } from "./invocation.ts";

/** Of one line of an answer. */
const MOST_CHARACTERS = 1024 * 1024;
/** A service says something at least every `server.limits.heartbeat`, while a command is at work too. */
const MOST_SILENCE_MS = 120_000;

/**
 * @param url of the service
 * @param silence milliseconds, after which it is not waited for any more
 * @returns false when nobody answers there
 * @throws Error with a message for the user
 */
export async function askService(
  url: string,
  command: RunCommandRequest["command"],
  { file }: NamedFile,
  { rest: [id], user, reason }: Invocation,
  silence = MOST_SILENCE_MS,
): Promise<boolean> {
  const body: RunCommandRequest = { command, file: await fileId(file), id, user, reason };
  const silent = new AbortController();
  const timer = setTimeout(() => silent.abort(new Error(`it has said nothing for ${silence / 1_000} s`)), silence);
  const response = await fetch(`${url}/observability/commands`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-console-access-key": process.env[CONSOLE_KEY_VARIABLE] ?? "" },
    body: JSON.stringify(body),
    redirect: "manual",
    signal: silent.signal,
  }).catch(() => null);
  try {
    silent.signal.throwIfAborted();
    if (response === null) return false;
    await sayEvents(response, timer);
    return true;
  } catch (error) {
    throw new Error(`the service at ${url}: ${messageOf(error)}`, { cause: error });
  } finally {
    clearTimeout(timer);
  }
}

async function sayEvents(response: Response, timer: NodeJS.Timeout): Promise<void> {
  const { status, headers } = response;
  const foreign = `it answered ${status}, and not as Penstock does`;
  if (status === 401) throw new Error(`it wants its console key: set ${CONSOLE_KEY_VARIABLE}, or --env-file FILE`);
  const isStream = headers.get("content-type")?.startsWith("text/event-stream");
  let hasSaid = false;
  for await (const line of linesOf(response)) {
    timer.refresh();
    if (!isStream) throw new Error(read(line)?.error ?? foreign);
    if (!line.startsWith("data: ")) continue;
    const event = read(line.slice("data: ".length)) as CommandEvent | undefined;
    if (event?.type === "error") throw new Error(event.error);
    if (event?.type !== "line") throw new Error(foreign);
    say(event.line);
    hasSaid = true;
  }
  if (!hasSaid) throw new Error(foreign);
}

async function* linesOf({ body }: Response): AsyncGenerator<string> {
  let rest = "";
  for await (const text of body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const lines = (rest + text).split("\n");
    rest = lines.pop()!;
    yield* lines;
    if (rest.length > MOST_CHARACTERS) throw new Error("its answer has a line of more than 1 MiB");
  }
  if (rest !== "") yield rest;
}

function read(json: string): { error?: string } | undefined {
  try {
    return Object(JSON.parse(json));
  } catch {
    return undefined;
  }
}
