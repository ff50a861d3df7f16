/**
 * Cancels a tool call when its client sends a message that says so. Revisions of the protocol before 2026-07-28 do that: their
 * clients keep the connection of a call that they have given up. The session id says whose call is meant. It is only a random name
 * that the client gets with its first reply, and no process stores it.
 */
import { randomUUID } from "node:crypto";
import { setMaxListeners } from "node:events";
import type { Context } from "../http/route.ts";

const SESSION_HEADER = "mcp-session-id";

export class Cancellations<S> {
  /** Running calls that belong to a session. */
  readonly #running = new Map<string, AbortController>();

  /** Runs `work` with a call whose signal also aborts when its client cancels it. */
  async run<T>(call: Context<S>, id: string | number, work: (call: Context<S>) => Promise<T>): Promise<T> {
    const key = callKey(call, id);
    if (key === null) return work(call);
    const controller = new AbortController();
    this.#running.set(key, controller);
    try {
      const signal = AbortSignal.any([call.signal, controller.signal]);
      // As with the signal of the call: every tool that runs in parallel adds a listener.
      setMaxListeners(0, signal);
      return await work(callWith(call, { signal, aborts: undefined }));
    } finally {
      if (this.#running.get(key) === controller) this.#running.delete(key);
    }
  }

  /** Aborts the calls that this body cancels. */
  handleMessage(call: Context<S>, body: unknown): void {
    for (const message of [body].flat() as { method?: unknown; params?: { requestId?: unknown } }[]) {
      if (message?.method !== "notifications/cancelled") continue;
      const key = callKey(call, message.params?.requestId);
      if (key !== null) this.#running.get(key)?.abort(new Error("the client has cancelled the call"));
    }
  }
}

/** Headers that go with the reply to a client's first message. */
export const sessionHeaders = (body: unknown): readonly string[] =>
  (body as { method?: unknown } | undefined)?.method === "initialize" ? [SESSION_HEADER, randomUUID()] : [];

/** Null without a session. The user is part of the key, so that nobody can cancel the calls of somebody else. */
function callKey({ headers, user }: Pick<Context<unknown>, "headers" | "user">, id: unknown): string | null {
  const session = headers[SESSION_HEADER];
  return session === undefined ? null : JSON.stringify([user?.id ?? user?.sub, session, id]);
}

/** The call of a request, with a signal or a listener of its own. */
export const callWith = <S>(call: Context<S>, own: Partial<Context<S>>): Context<S> =>
  new Proxy(call, { get: (whole, key) => Reflect.get(Object.hasOwn(own, key) ? own : whole, key) });
