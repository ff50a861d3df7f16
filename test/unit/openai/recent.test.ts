/** What WebSockets of `/v1/responses` may continue without the store: one response each, within a bound over all. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { RecentResponses } from "../../../core/openai/responses.ts";

const MIB = 1024 * 1024;
const sized = (size: number) => ({ items: [], chain: [], size });

test("RecentResponses: a socket has its newest response alone, and none that is larger than 8 MiB", () => {
  const recent = new RecentResponses();
  const socket = {};
  recent.set(socket, "a", sized(1));
  recent.set(socket, "b", sized(2));
  assert.deepEqual(
    [recent.get(socket, "a"), recent.get(socket, "b"), recent.get({}, "b")],
    [undefined, sized(2), undefined],
  );
  recent.set(socket, "c", sized(8 * MIB + 1));
  for (const id of ["b", "c"]) assert.equal(recent.get(socket, id), undefined);
});

test("RecentResponses: beyond 64 MiB of all sockets the oldest are forgotten, and what is forgotten counts no more", () => {
  const recent = new RecentResponses();
  const sockets = Array.from({ length: 10 }, () => ({}));
  const known = () => sockets.filter((socket) => recent.get(socket, "r") !== undefined).length;
  for (const socket of sockets) recent.set(socket, "r", sized(8 * MIB));
  assert.equal(known(), 8);
  assert.equal(recent.get(sockets[0]!, "r"), undefined);
  for (const socket of sockets) recent.forget(socket);
  for (const socket of sockets.slice(0, 8)) recent.set(socket, "r", sized(8 * MIB));
  assert.equal(known(), 8);
});
