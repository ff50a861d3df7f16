/** The heap of a process that stays grows by a share of what is in use, whatever the machine has. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { ROOT } from "../../support/command-line.ts";

/** 64 MiB of texts, of which each in turn is replaced until 512 MiB were allocated. Prints how large the heap was at most, in MiB. */
const CHURN = `
  const kept = [];
  let most = 0;
  for (let count = 0; count < 262_144; count++) {
    kept[count % 32_768] = Buffer.alloc(2_048, 97).latin1Slice();
    if (count % 1_024 === 0) {
      await new Promise(setImmediate);
      most = Math.max(most, process.memoryUsage().heapTotal);
    }
  }
  console.log(Math.round(most / 1024 / 1024));
`;

/** With room for 4 GiB, as V8 takes it where the machine has that; the young generation is not what is asked about. */
function heapOf(options: readonly string[], isLarge = true): number {
  const { href } = pathToFileURL(`${ROOT}/core/platform/heap.ts`);
  const script = `const { boundHeapGrowth } = await import(${JSON.stringify(href)});\nboundHeapGrowth(() => ${isLarge});\n${CHURN}`;
  const args = [
    "--max-old-space-size=4096",
    "--max-semi-space-size=8",
    ...options,
    "--import",
    "tsx",
    "--input-type=module",
    "-e",
    script,
  ];
  return Number(
    execFileSync(process.execPath, args, { cwd: ROOT, encoding: "utf8", env: { ...process.env, NODE_OPTIONS: "" } }),
  );
}

test("boundHeapGrowth keeps the heap below two and a half times what is in use where much is held, and leaves a growth that was given to Node.js", () => {
  const bounded = heapOf([]);
  assert.ok(bounded < 64 * 2.5, `${bounded} MiB for 64 in use`);
  assert.ok(heapOf([], false) > bounded * 1.3, "as V8 likes it while little is held");
  const given = heapOf(["--heap-growing-percent=300"]);
  assert.ok(given > bounded * 1.5, `${given} MiB where 300 % were asked for, ${bounded} MiB otherwise`);
});
