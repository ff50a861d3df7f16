/** One reply of the real server, split up so that the bare server can send the same bytes. */
import { randomUUID } from "node:crypto";
import { request } from "node:http";
import { createPicker, fill, ID } from "./numbers.ts";
import type { HttpScenario } from "./scenarios.ts";

export interface Reply {
  method: string;
  path: string;
  /** The status line, such as `200 OK`. */
  status: string;
  headers: [name: string, value: string][];
  /** One item for a whole reply, one per event for a stream. */
  chunks: string[];
  streamed: boolean;
  /** The second request, if there is one. */
  next?: Reply;
}

/** Headers that a server adds itself. */
const OWN_HEADERS = new Set(["date", "content-length", "transfer-encoding", "connection", "keep-alive", "uwebsockets"]);

/** Splits an event stream after each blank line. */
function eventTexts(body: string): string[] {
  return body.split(/(?<=\n\n)/);
}

/** Sends the request of a scenario once, and the one after it. Throws when a reply is not what the scenario expects. */
export async function capture(port: number, scenario: HttpScenario): Promise<Reply> {
  const { numbers, body, next } = scenario;
  const number = numbers?.pick === "random" ? createPicker(numbers)() : 0;
  const first = await send(port, scenario, fill(scenario.path, number), body === null ? null : fill(body, number));
  if (next === undefined) return first;
  const id = idIn(next.id, first.chunks.join(""));
  return { ...first, next: await send(port, scenario, next.path.replace(ID, id), next.body) };
}

export function idIn(pattern: string, body: string): string {
  const id = new RegExp(pattern).exec(body)?.[1];
  if (id === undefined) throw new Error(`no ${pattern} in ${body.slice(0, 200)}`);
  return id;
}

async function send(port: number, scenario: HttpScenario, path: string, sent: string | null): Promise<Reply> {
  const key = scenario.keyed && { "idempotency-key": randomUUID() };
  const headers = { ...scenario.headers?.(), ...key, ...(sent !== null && { "content-type": "application/json" }) };
  const { method } = scenario;
  const reply = await new Promise<Reply & { body: string }>((resolve, reject) => {
    const asked = request({ host: "127.0.0.1", port, method, path, headers, agent: false }, (response) => {
      let body = "";
      response.setEncoding("utf8").on("data", (text: string) => {
        body += text;
      });
      response.once("error", reject);
      response.once("end", () => {
        const pairs: [string, string][] = [];
        for (let index = 0; index < response.rawHeaders.length; index += 2) {
          const name = response.rawHeaders[index] as string;
          if (!OWN_HEADERS.has(name.toLowerCase())) pairs.push([name, response.rawHeaders[index + 1] as string]);
        }
        const streamed = (response.headers["content-type"] ?? "").startsWith("text/event-stream");
        const status = `${response.statusCode} ${response.statusMessage}`;
        resolve({ method, path, status, headers: pairs, streamed, chunks: streamed ? eventTexts(body) : [body], body });
      });
    });
    asked.once("error", reject);
    asked.end(sent ?? undefined);
  });
  const wrong = /^20[01] /.test(reply.status) ? checked(scenario, reply.body) : `status ${reply.status}: ${reply.body}`;
  if (wrong !== null) throw new Error(`${scenario.name}: unexpected reply of ${method} ${path}: ${wrong}`);
  const { body: _, ...rest } = reply;
  return rest;
}

/** The scenario's check; a body that cannot be parsed is reported too. */
export function checked(scenario: HttpScenario, body: string): string | null {
  try {
    return scenario.check(body);
  } catch (error) {
    return `${(error as Error).message} in ${JSON.stringify(body.slice(0, 200))}`;
  }
}
