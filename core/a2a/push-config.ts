/** The push configuration of a task: where its client wants to be notified. */
import type { TaskPushNotificationConfig } from "@a2a-js/sdk";
import { invalid } from "../lib/errors.ts";
import type { AllowedAddresses } from "../outbound/allowed-addresses.ts";
import type { Version } from "./params.ts";

export interface PushConfig {
  readonly id: string;
  readonly url: string;
  readonly token?: string;
  /** The client's credentials; without them a notification is authenticated by the service's signature. */
  readonly authentication?: { readonly scheme: string; readonly credentials?: string };
  /** The version of the protocol in which notifications are written. */
  readonly version: Version;
  /** The issuer of signatures: the address of the agent, as the client knows it from its card. */
  readonly issuer: string;
}

interface PushContext extends Pick<PushConfig, "version" | "issuer"> {
  readonly task: string;
  /** Path of the URL in the request. */
  readonly path: string;
  readonly addresses: AllowedAddresses;
}

/**
 * Reads a configuration. One without an id gets that of the task, so that a repeated request does not create another one.
 *
 * @param given validated with its schema
 * @throws ServiceError `invalid_input` for a URL that may not be called
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

/** The configuration as clients see it: without its secrets. */
export const shownConfig = (task: string, { id, url, authentication }: PushConfig): TaskPushNotificationConfig => ({
  tenant: "",
  taskId: task,
  id,
  url,
  token: "",
  authentication: authentication && { scheme: authentication.scheme, credentials: "" },
});
