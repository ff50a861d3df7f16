/** What follows from the rows a little later, after a crash too: messages found by meaning, and the record of runs. */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { Get, SavedMessage } from "./checker.ts";
import { forEach, textOf } from "./checker.ts";

/** For hangs only. */
const HANG_MS = 60_000;
const PAUSE = 50;
/** Conversations that are searched; a crash may have stopped the index anywhere. */
const SEARCHED = 40;

interface Found {
  results: { id: string; score: number; message: SavedMessage; conversationId: string }[];
}

/** The same text scores 1 beside rounding; texts of a conversation share most of their words, but not all. */
const THRESHOLD = 0.999;

/** The newest text of each conversation is found there, and nothing that is not there any more. */
export async function checkSearch(
  get: Get,
  conversations: ReadonlyMap<string, readonly SavedMessage[]>,
): Promise<void> {
  const filled = [...conversations].filter(([, messages]) => messages.length > 0).slice(-SEARCHED);
  await forEach(filled, async ([conversationId, messages]) => {
    const sought = messages.at(-1)!;
    const query = { searchQuery: textOf(sought), conversationId, threshold: String(THRESHOLD), limit: "50" };
    const path = `/api/memory/search?${new URLSearchParams(query)}`;
    const ids = new Set(messages.map(({ id }) => id));
    const end = Date.now() + HANG_MS;
    for (;;) {
      const { results } = (await get<Found>(path))!;
      for (const { id } of results) assert.ok(ids.has(id), `search finds ${id}, which is not in ${conversationId}`);
      if (results.some(({ message }) => textOf(message) === textOf(sought))) return;
      assert.ok(Date.now() < end, `search does not find ${JSON.stringify(sought)} in ${conversationId}`);
      await sleep(PAUSE);
    }
  });
}

interface History {
  entries: { id: string; status: string }[];
  total: number;
}

/** The agent's history has as many runs as it says, each once, and none that a dead process left open. */
export async function checkHistory(get: Get, agent: string): Promise<void> {
  const end = Date.now() + HANG_MS;
  for (;;) {
    const runs = new Map<string, string>();
    let count = 0;
    let total = 0;
    for (let page = 0; page === 0 || count < total; page += 1) {
      const found = (await get<History>(`/agents/${agent}/history?page=${page}&limit=100`))!;
      total = found.total;
      for (const { id, status } of found.entries) runs.set(id, status);
      count += found.entries.length;
      if (found.entries.length === 0) break;
    }
    assert.equal(count, total, `the total of the history of ${agent}`);
    assert.equal(runs.size, count, `a run is twice in the history of ${agent}`);
    const open = [...runs].filter(([, status]) => status === "running");
    if (open.length === 0) return;
    assert.ok(Date.now() < end, `runs of a process that was killed are still open: ${JSON.stringify(open)}`);
    await sleep(PAUSE);
  }
}
