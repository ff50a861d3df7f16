/** Tells one receiver of a task: the body as its version of the protocol writes it, the signature, and one request. */
import { StreamResponse } from "@a2a-js/sdk";
import { V03PushNotificationSerializer } from "@a2a-js/sdk/compat/v0_3/server";
import { V1PushNotificationSerializer } from "@a2a-js/sdk/server";
import { Agent, request } from "undici";
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
  readonly #agent: Agent;

  /** @param addresses those that the manifest allows now */
  constructor(store: Store, addresses: () => AllowedAddresses) {
    this.signer = new PushSigner(store);
    this.#addresses = addresses;
    // Sockets connect to the addresses that were checked: no second lookup of a name gives others.
    this.#agent = new Agent({
      connect: {
        lookup: (name, settings, found) => addresses().lookup(name, settings, found),
        timeout: CONNECT_TIMEOUT_MS,
      },
    });
  }

  /** Resolves when the receiver has taken it; rejects with an error that says why it has not. */
  async send({ config, task, max }: Notification, signal: AbortSignal): Promise<void> {
    const { hostname } = new URL(config.url);
    if (!this.#addresses().allowsHost(hostname)) throw new Error("it is at a private address");
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
    // A redirect is an answer as any other: it could lead to an address that is not allowed. The connection ends with the answer: otherwise
    // receivers could have us hold as many as they like, and what a name leads to would not be looked up again.
    const answer = await request(config.url, {
      method: "POST",
      headers,
      body,
      dispatcher: this.#agent,
      signal,
      reset: true,
    });
    // What it says does not matter. Leaving a body is an error event of it, which would end the process without a listener.
    answer.body.on("error", () => undefined);
    answer.body.destroy();
    if (answer.statusCode < 200 || answer.statusCode > 299) throw new Error(`it answers ${answer.statusCode}`);
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }
}

/** The task; the status alone of one that is too large, and without its message if that is too large as well. */
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
