/** Asks for everything with every credential, and compares with what the contract says. */
import type { Credential } from "./access-credentials.ts";
import type { SecuredOptions } from "./access-services.ts";
import { type Endpoint, needsOf, opens } from "./access-table.ts";
import type { Loose } from "./served-upstream.ts";

interface Reply {
  status: number;
  headers: Record<string, string>;
  text(): string;
}

export type Send = (request: { method: string; path: string; headers?: Record<string, string> }) => Promise<Reply>;

export const textOf = ({ method, path }: { method: string; path: string }): string => `${method} ${path}`;

/** Nothing has such a name: who is let in gets 404, or 400 for want of a body. */
export const targetOf = ({ path }: Endpoint, { query = "" }: Credential): string =>
  path.replace(/:[^/]+/g, "nobody").replace("**", "deep") + query;

/** What is wrong with a refusal; an empty text when nothing is. */
function refusalProblem(
  reply: Reply,
  hint: string,
  production: boolean,
  { headers = {}, query = "" }: Credential,
  isOpenai: boolean,
): string {
  const text = reply.text();
  if (reply.headers["x-error-code"] !== "unauthorized") return "x-error-code";
  if (!/^(Bearer|ConsoleKey) realm=/.test(reply.headers["www-authenticate"] ?? "")) return "www-authenticate";
  if (reply.headers["access-control-allow-origin"] !== "*") return "CORS";
  if (text === "") return "";
  const message = messageIn(JSON.parse(text), isOpenai);
  if (message === null) return "envelope";
  if (message.includes(hint) === production) return "development hint";
  const secrets = [headers.authorization?.split(" ")[1] ?? "", query.split("=")[1] ?? ""];
  return secrets.some((secret) => secret.length > 20 && message.includes(secret)) ? "repeats the credential" : "";
}

/** The message of a failure in the JSON envelope, or in OpenAI's form; null when it is another. */
function messageIn(body: Loose, isOpenai: boolean): string | null {
  if (!isOpenai) return body.success === false && Object.keys(body).length === 2 ? body.error : null;
  const { error, ...rest } = body;
  const isWhole = error.type === "authentication_error" && error.code === "invalid_api_key" && error.param === "";
  return isWhole && Object.keys(rest).length === 0 ? error.message : null;
}

/**
 * The requests that were answered otherwise than the contract says.
 *
 * @param isServed whether something answers there: else who is let in is told that nothing does
 */
export async function mistakes(
  send: Send,
  mode: SecuredOptions,
  endpoints: readonly Endpoint[],
  sent: readonly Credential[],
  isServed: (endpoint: Endpoint) => boolean,
): Promise<string[]> {
  const found: string[] = [];
  for (const endpoint of endpoints) {
    const needs = needsOf(endpoint, mode);
    const hint = endpoint.method === "WS" ? "?dev=true" : "x-service-dev";
    for (const credential of sent) {
      const { headers } = credential;
      const reply = await send({ method: endpoint.method, path: targetOf(endpoint, credential), headers });
      const report = (what: string) => found.push(`${textOf(endpoint)} with ${credential.name}: ${what}`);
      const open = opens(credential.worth, needs, mode);
      if (!open && reply.status !== 401) report(`let in, ${reply.status}`);
      else if (open && (reply.status === 401 || reply.status >= 500)) report(`not let in, ${reply.status}`);
      else if (!open) {
        const problem = refusalProblem(reply, hint, mode.production, credential, endpoint.path.startsWith("/v1/"));
        if (problem !== "") report(`refused with a wrong ${problem}`);
      } else if (!isServed(endpoint) && ![404, 405].includes(reply.status)) report(`answered ${reply.status}`);
    }
  }
  return found;
}
