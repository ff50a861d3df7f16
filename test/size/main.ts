/** `npm run size`: how large core/ is and how far requests go through it, beside the ceilings. With `--lower` the ceilings fall to that. */
import { parseArgs } from "node:util";
import { exceeded, isExceeded, lowered, measureTokens, measureWalks, readCeilings, writeCeilings } from "./ceilings.ts";

const { values } = parseArgs({ options: { lower: { type: "boolean", default: false } } });
const sizes = { ...measureTokens(), ...(await measureWalks()) };
const ceilings = readCeilings();
for (const [name, size] of Object.entries(sizes)) {
  const ceiling = ceilings[name] ?? 0;
  const mark = isExceeded(size, ceiling) ? "  too much" : "";
  console.log(`${name.padEnd(30)} ${String(size).padStart(8)}  ceiling ${String(ceiling).padStart(8)}${mark}`);
}
if (values.lower) writeCeilings(lowered(sizes, ceilings));
process.exitCode = exceeded(sizes, ceilings).length === 0 ? 0 : 1;
