/** Texts of foreign MCP servers that are kept for agents. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ContextTexts } from "../../core/mcp/client.ts";
import type { McpConnection } from "../../core/mcp/connection.ts";
import { ToolUnavailable } from "../../core/tools/tool.ts";
import { silent } from "../support/providers.ts";

const STYLE = { kind: "resource", uri: "manual://style" } as const;
const CALLER = { user: null, signal: new AbortController().signal };

/** @param outcomes what the server says, or how it fails, one for each request */
function texts(outcomes: (string | Error)[], fresh: number) {
  let asked = 0;
  const connection = {
    read: async () => {
      const outcome = outcomes[asked++]!;
      if (outcome instanceof Error) throw outcome;
      return outcome;
    },
  } as unknown as McpConnection;
  const sender = { name: "docs", timeout: 60_000, logger: silent, userKey: () => "" };
  const kept = new ContextTexts({ ...sender, send: (_user, _signal, request) => request(connection) }, fresh);
  return { read: () => kept.read(STYLE, CALLER), asked: () => asked };
}

test("ContextTexts.read: a text that is no longer fresh is asked for again, and used as it was when the server is away", async () => {
  const { read, asked } = texts(["first", new ToolUnavailable("away"), "second"], 0);
  assert.deepEqual([await read(), await read(), await read(), asked()], ["first", "first", "second", 3]);
});

test("ContextTexts.read: what a server refuses now is not used as it was", async () => {
  const { read } = texts(["first", new Error("not for you")], 0);
  await read();
  await assert.rejects(read(), /resource "manual:\/\/style" of MCP server "docs" cannot be read: not for you/);
});

test("ContextTexts.read: those who need a fresh text, and those who need it at once, ask the server once", async () => {
  const { read, asked } = texts(["first"], 60_000);
  assert.deepEqual([...(await Promise.all([read(), read()])), await read(), asked()], ["first", "first", "first", 1]);
});

test("ContextTexts.read: what is kept is bounded whatever it is that is asked for: long addresses of short texts too", async () => {
  let asked = 0;
  const connection = { read: async () => `${asked++}` } as unknown as McpConnection;
  const sender = { name: "docs", timeout: 60_000, logger: silent, userKey: () => "" };
  const kept = new ContextTexts({ ...sender, send: (_user, _signal, request) => request(connection) });
  const read = (page: number) =>
    kept.read({ kind: "resource", uri: `manual://${page}/${"x".repeat(1024 * 1024)}` }, CALLER);
  for (let page = 0; page < 12; page++) await read(page);
  assert.equal(await read(11), "11");
  assert.equal(await read(0), "12", "of 12 Mi characters the first are kept no more");
});
