/** Notifies one receiver of a task: the body in its version of the protocol, the signature, and one request. */
import { StreamResponse } from "@a2a-js/sdk";
import { V03PushNotificationSerializer } from "@a2a-js/sdk/compat/v0_3/server";
import { V1PushNotificationSerializer } from "@a2a-js/sdk/server";
import undici from "undici";
import { createOutboundAgent, hasProxy, type OutboundAgent } from "../lib/outbound.ts";
import type { AllowedAddresses } from "../models/files/allowed-addresses.ts";
import type { Store } from "../storage/store.ts";
import type { PushConfig } from "./push-config.ts";
import { PushSigner } from "./push-signer.ts";
import type { Task } from "./task.ts";

const SERIALIZERS = { "1.0": new V1PushNotificationSerializer(), "0.3": new V03PushNotificationSerializer() };
const CONNECT_TIMEOUT_MS = 5_000;

interface Notification {
  readonly config: PushConfig;
  readonly task: Task;
  /** Most bytes of the body. */
  readonly max: number;
}

export class PushDelivery {
  readonly signer: PushSigner;
  readonly #addresses: () => AllowedAddresses;
  readonly #agent: OutboundAgent;

  /** @param addresses the addresses that the current manifest allows */
  constructor(store: Store, addresses: () => AllowedAddresses) {
    this.signer = new PushSigner(store);
    this.#addresses = addresses;
    // Sockets connect to the addresses that were checked: a second lookup of a name could give others.
    this.#agent = createOutboundAgent(undici, {
      connect: {
        lookup: (name, settings, found) => addresses().lookup(name, settings, found),
        timeout: CONNECT_TIMEOUT_MS,
      },
    });
  }

  /** Resolves when the receiver has accepted the notification; rejects with the reason if it has not. */
  async send({ config, task, max }: Notification, signal: AbortSignal): Promise<void> {
    const { hostname } = new URL(config.url);
    if (!this.#addresses().allowsHost(hostname)) throw new Error("it is at a private address");
    if (hasProxy()) await this.#addresses().checkName(hostname);
    const { body, contentType } = serialize(task, config, max);
    const jwt = await this.signer.sign({ config, task, body });
    const { scheme, credentials } = config.authentication ?? {};
    const headers = {
      "content-type": contentType,
      "user-agent": "penstock",
      "x-a2a-notification-jwt": jwt,
      authorization: scheme && credentials ? `${scheme} ${credentials}` : `Bearer ${jwt}`,
      ...(config.token !== undefined && { "x-a2a-notification-token": config.token }),
    };
    // Redirects are not followed: one could lead to an address that is not allowed. The connection is not reused: otherwise receivers could
    // make us keep any number of connections open, and the address of a name would not be checked again.
    const answer = await undici.request(config.url, {
      method: "POST",
      headers,
      body,
      dispatcher: this.#agent,
      signal,
      reset: true,
    });
    // The body of the answer is ignored. An abandoned body emits an error event, which would end the process without a listener.
    answer.body.on("error", () => undefined);
    answer.body.destroy();
    if (answer.statusCode < 200 || answer.statusCode > 299) throw new Error(`it answers ${answer.statusCode}`);
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }
}

/** The task as JSON; only its status if it is too large, and without the status message if that is still too large. */
function serialize(task: Task, { version }: PushConfig, max: number) {
  const { id, contextId, status, metadata } = task;
  const { message: _, ...bare } = status;
  const statusUpdate = { taskId: id, contextId, status, metadata };
  const forms = [{ task }, { statusUpdate }, { statusUpdate: { ...statusUpdate, status: bare, metadata: undefined } }];
  const written = forms.map((form) => () => SERIALIZERS[version].serialize(StreamResponse.fromJSON(form)));
  const last = written.pop()!;
  for (const write of written) {
    const text = write();
    if (Buffer.byteLength(text.body) <= max) return text;
  }
  return last();
}
