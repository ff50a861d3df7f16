/** Where the client of a task wants to be told of it. */
import type { TaskPushNotificationConfig } from "@a2a-js/sdk";
import { invalid } from "../lib/errors.ts";
import type { AllowedAddresses } from "../models/files/allowed-addresses.ts";
import type { Version } from "./params.ts";

export interface PushConfig {
  readonly id: string;
  readonly url: string;
  readonly token?: string;
  /** Without credentials, the signature of the service stands in their place. */
  readonly authentication?: { readonly scheme: string; readonly credentials?: string };
  /** What is told is written as this version of the protocol does. */
  readonly version: Version;
  /** Who signs: the address of the agent, as the client knows it from its card. */
  readonly issuer: string;
}

interface PushContext extends Pick<PushConfig, "version" | "issuer"> {
  readonly task: string;
  /** Where the URL is in the request. */
  readonly path: string;
  readonly addresses: AllowedAddresses;
}

/**
 * A configuration without an id gets that of the task, so that the same request again does not make another one.
 *
 * @param given checked against its schema
 * @throws ServiceError `invalid_input` for a URL that cannot be told
 */
export function readPushConfig(
  { id, url, token, authentication }: TaskPushNotificationConfig,
  { version, issuer, task, path, addresses }: PushContext,
): PushConfig {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (parsed === null || !/^https?:$/.test(parsed.protocol) || parsed.username !== "" || parsed.password !== "")
    throw invalid(`${path} must be an http or https URL without a user and a password`);
  if (!addresses.mayAllowHost(parsed.hostname))
    throw invalid(`${path} must not be at a private address, unless server.push.allowPrivate lists it`);
  const { scheme = "", credentials = "" } = authentication ?? {};
  if (credentials && !scheme)
    throw invalid(`${path.replace(/url$/, "authentication")} must name the scheme of its credentials`);
  return {
    id: id || task,
    url,
    ...(token && { token }),
    ...(scheme && { authentication: { scheme, ...(credentials && { credentials }) } }),
    version,
    issuer,
  };
}

/** As clients see it: without its secrets. */
export const shownConfig = (task: string, { id, url, authentication }: PushConfig): TaskPushNotificationConfig => ({
  tenant: "",
  taskId: task,
  id,
  url,
  token: "",
  authentication: authentication && { scheme: authentication.scheme, credentials: "" },
});
