/** Has a running service do what a command cannot do beside it. */
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import type { CommandEvent, RunCommandRequest } from "../../generated/types.ts";
import { CONSOLE_KEY_VARIABLE } from "../auth/credentials.ts";
import type { NamedFile } from "../storage/sqlite-backup.ts";
import { fileId } from "../storage/sqlite-lock.ts";
import { type Invocation, say } from "./invocation.ts";

/**
 * @param url of the service
 * @returns false when nobody answers there
 * @throws Error with a message for the user
 */
export async function askService(
  url: string,
  command: RunCommandRequest["command"],
  { file }: NamedFile,
  { rest: [id], user, reason }: Invocation,
): Promise<boolean> {
  const body: RunCommandRequest = { command, file: await fileId(file), id, user, reason };
  const response = await fetch(`${url}/observability/commands`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-console-access-key": process.env[CONSOLE_KEY_VARIABLE] ?? "" },
    body: JSON.stringify(body),
    redirect: "error",
  }).catch(() => null);
  if (response === null) return false;
  if (!response.ok) throw new Error(`the service at ${url}: ${await refusalOf(response)}`);
  for await (const line of createInterface({ input: Readable.fromWeb(response.body!) })) {
    if (!line.startsWith("data: ")) continue;
    const event = JSON.parse(line.slice("data: ".length)) as CommandEvent;
    if (event.type === "error") throw new Error(`the service at ${url}: ${event.error}`);
    say(event.line);
  }
  return true;
}

async function refusalOf(response: Response): Promise<string> {
  if (response.status === 401) return `it wants its console key: set ${CONSOLE_KEY_VARIABLE}, or --env-file FILE`;
  const { error } = (await response.json().catch(() => ({}))) as { error?: string };
  return error ?? `it answered ${response.status}`;
}
