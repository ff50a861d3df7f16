/** What sockets over uWebSockets.js make of the callbacks of the addon. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { socketBehavior, UwsSocket } from "../../../core/transport/uws.ts";
import type { NativeSocket } from "../../../core/transport/uws-native.ts";

test("UwsSocket: a drain is told after the addon's callback, not after the end, and what it throws is reported", async () => {
  const told: string[] = [];
  const reported: unknown[] = [];
  const failure = new Error("cannot go on");
  const host = { upgrade() {}, onClosed() {}, onTooLarge() {}, report: (error: unknown) => void reported.push(error) };
  const behavior = socketBehavior(1024, host);
  const socket = new UwsSocket(() => ({
    message() {},
    drained() {
      told.push("drained");
      throw failure;
    },
    ended: () => void told.push("ended"),
  }));
  const native = { getUserData: () => ({ socket }) } as unknown as NativeSocket;
  behavior.open(native);
  behavior.drain(native);
  assert.deepEqual(told, []);
  await turn();
  assert.deepEqual([told, reported], [["drained"], [failure]]);
  behavior.drain(native);
  behavior.close(native, 1000, new ArrayBuffer(0));
  await turn();
  assert.deepEqual(told, ["drained", "ended"]);
});
