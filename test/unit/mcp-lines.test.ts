/** What a command writes to its standard error. */
import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { readLines } from "../../core/mcp/connection.ts";

async function linesOf(chunks: readonly string[]): Promise<string[]> {
  const stream = new PassThrough();
  const lines: string[] = [];
  readLines(stream, 10, (line) => lines.push(line));
  for (const chunk of chunks) if (!stream.write(chunk)) await new Promise((resolve) => stream.once("drain", resolve));
  await new Promise((resolve) => stream.once("end", resolve).end());
  return lines;
}

test("lines come whole, however they are cut into chunks, and the last one without its end", async () => {
  assert.deepEqual(await linesOf(["one\ntw", "o\r\n\nthr", "ee"]), ["one", "two", "three"]);
});

test("a line that does not end is cut, and takes no memory", async () => {
  // More characters than a string may have.
  const chunk = "x".repeat(16 * 1024 * 1024);
  assert.deepEqual(await linesOf([...Array(40).fill(chunk), "\nnext\n"]), ["xxxxxxxxxx", "next"]);
});
