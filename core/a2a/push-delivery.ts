/** Notifies one receiver of a task: the body in its version of the protocol, the signature, and one request. */
import { StreamResponse } from "@a2a-js/sdk";
import { V03PushNotificationSerializer } from "@a2a-js/sdk/compat/v0_3/server";
import { V1PushNotificationSerializer } from "@a2a-js/sdk/server";
import type { AllowedAddresses } from "../outbound/allowed-addresses.ts";
import { leave } from "../outbound/body.ts";
import { GuardedClient } from "../outbound/guarded-client.ts";
import type { Store } from "../storage/store.ts";
import type { PushConfig } from "./push-config.ts";
import { PushSigner } from "./push-signer.ts";
import type { Task } from "./task.ts";

const SERIALIZERS = { "1.0": new V1PushNotificationSerializer(), "0.3": new V03PushNotificationSerializer() };

interface Notification {
  readonly config: PushConfig;
  readonly task: Task;
  /** Most bytes of the body. */
  readonly max: number;
}

export class PushDelivery {
  readonly signer: PushSigner;
  readonly #client: GuardedClient;

  /** @param addresses the addresses that the current manifest allows */
  constructor(store: Store, addresses: () => AllowedAddresses) {
    this.signer = new PushSigner(store);
    this.#client = new GuardedClient(addresses);
  }

  /** Resolves when the receiver has accepted the notification; rejects with the reason if it has not. */
  async send({ config, task, max }: Notification, signal: AbortSignal): Promise<void> {
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
    const url = new URL(config.url);
    const answer = await this.#client.request(url, { method: "POST", headers, body, signal, reset: true });
    leave(answer.body);
    if (answer.statusCode < 200 || answer.statusCode > 299) throw new Error(`it answers ${answer.statusCode}`);
  }

  close(): Promise<void> {
    return this.#client.close();
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
