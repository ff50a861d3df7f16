/**
 * Reloads under full load: no request fails, and what is replaced is given back. `PENSTOCK_RELOADS=100` is the long form, which also
 * weighs the heap.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Pool } from "undici";
import { start } from "../core/app/start.ts";
import { EXAMPLES, pluginFolder } from "./support/plugin-folder.ts";
import { manifestWith } from "./support/service.ts";
import { TRANSPORTS } from "./support/transports.ts";

const CONNECTIONS = 64;
const RELOADS = Number(process.env.PENSTOCK_RELOADS ?? 10);
/** The heap after this many reloads is what it is measured by: until then code is compiled and caches fill. */
const WARM = 20;
/** Of the heap between the two: an old generation that is kept weighs more than this. */
const GROWTH_BYTES = 64 * 1024;

setFlagsFromString("--expose-gc");
const gc = runInNewContext("gc") as () => void;

const HEADERS = { "content-type": "application/json" };
const BODY = JSON.stringify({ input: "hello" });

/** No two that follow each other are the same in anything that a reload can change. */
function manifestOf(round: number, transport: string): string {
  const odd = round % 2 === 1;
  return JSON.stringify(
    manifestWith(
      { instructions: `Round ${round}.`, tools: odd ? ["sum"] : [] },
      {
        // What is recorded of each run would grow with the load.
        observability: { sample: 0 },
        logs: { level: odd ? "error" : "fatal" },
        providers: { demo: { use: "scripted", replies: [{ text: String(round) }] } },
        tools: odd ? { sum: { use: "add" } } : {},
        workflows: { [`flow-${round % 3}`]: { steps: [{ id: "a", andThen: { set: round } }] } },
        routes: odd ? [{ use: "hello" }] : [],
        mcp: { servers: { inside: { name: `Inside ${round}`, version: "1.0.0", agents: ["assistant"] } } },
        server: {
          transport,
          cors: { origin: `https://${round}.example` },
          limits: { request: `${100 + round}s`, connections: 1000 + round },
        },
      },
    ),
  );
}

/** The heap that is left when everything that nobody holds is gone. */
async function heapInUse(): Promise<number> {
  for (let round = 0; round < 5; round++) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    gc();
  }
  return process.memoryUsage().heapUsed;
}

async function eventually(holds: () => boolean | Promise<boolean>, what: string): Promise<void> {
  for (let tries = 0; !(await holds()); tries++) {
    assert.ok(tries < 2_000, what);
    await new Promise((resolve) => setTimeout(resolve, 10));
    gc();
  }
}

for (const transport of TRANSPORTS)
  describe(`POST /reload over ${transport}, with ${CONNECTIONS} connections at full load`, () => {
    test(`${RELOADS} reloads: no request fails, each is answered by one manifest, and the old ones are given back`, async (t) => {
      const folder = pluginFolder(t, { "service.yaml": manifestOf(0, transport), "package.json": "{}" });
      const config = join(folder, "service.yaml");
      const log = { write: () => {} };
      const running = await start({ config, port: 0, plugins: [EXAMPLES], project: folder, env: process.env, log });
      const pool = new Pool(running.url, { connections: CONNECTIONS, pipelining: 1 });
      t.after(async () => {
        await pool.destroy();
        await running.kill();
      });
      let over = false;
      let answered = 0;
      const failures: string[] = [];
      const seen = new Set<string>();
      const work = async (path: string, body: string, read: (text: string) => string | undefined) => {
        while (!over) {
          const reply = await pool.request({ method: "POST", path, headers: HEADERS, body });
          const text = await reply.body.text();
          const said = reply.statusCode === 200 ? read(text) : undefined;
          if (said === undefined) failures.push(`${path} ${reply.statusCode} ${text.slice(0, 200)}`);
          else seen.add(said);
          answered++;
        }
      };
      const ofText = (text: string) => (JSON.parse(text) as { data?: { text: string } }).data?.text;
      const ofStream = (text: string) => (text.includes('"finish"') ? /"delta":"(\d+)/.exec(text)?.[1] : undefined);
      const load = Promise.all(
        Array.from({ length: CONNECTIONS }, (_, index) =>
          index % 4 === 0
            ? work("/agents/assistant/stream", BODY, ofStream)
            : work("/agents/assistant/text", BODY, ofText),
        ),
      );
      const replaced: WeakRef<object>[] = [];
      let warm = 0;
      for (let round = 1; round <= RELOADS; round++) {
        if (round > 1) replaced.push(new WeakRef(running.service));
        writeFileSync(config, manifestOf(round, transport));
        const before = answered;
        const reply = await fetch(`${running.url}/reload`, { method: "POST" });
        assert.equal(reply.status, 200, await reply.text());
        await eventually(() => answered >= before + CONNECTIONS, "requests go on");
        if (round === WARM) warm = await heapInUse();
      }
      over = true;
      await load;
      assert.deepEqual(failures.slice(0, 3), []);
      assert.equal(failures.length, 0);
      assert.ok(seen.has(String(RELOADS)), "the last manifest was served");
      const { generations } = running.booted;
      await eventually(() => generations!.size === 1, "every old generation has ended");
      const left = () => replaced.filter((reference) => reference.deref() !== undefined).length;
      await eventually(() => left() === 0, `nothing holds what was replaced`);
      t.diagnostic(`${answered} requests`);
      if (RELOADS <= WARM) return;
      const grown = (await heapInUse()) - warm;
      t.diagnostic(`the heap has grown by ${Math.round(grown / 1024)} KiB from reload ${WARM} to ${RELOADS}`);
      assert.ok(grown < GROWTH_BYTES * (RELOADS - WARM), `${grown} bytes`);
    });
  });
