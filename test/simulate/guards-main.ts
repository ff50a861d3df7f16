/**
 * `npm run simulate:guards`: takes each guard of guards.ts away, and plays seeds until a simulation goes wrong. `--seeds K` is how many
 * (100), and words choose the guards that have them in their titles.
 */
import { parseArgs } from "node:util";
import { buildService } from "./build.ts";
import { GUARDS } from "./guards.ts";
import { planOf } from "./plan.ts";
import { simulate } from "./simulation.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seeds: { type: "string", default: "100" } },
});
let unnoticed = 0;
for (const guard of GUARDS) {
  if (positionals.length > 0 && !positionals.some((word) => guard.title.includes(word))) continue;
  const build = await buildService([guard]);
  let found: string | null = null;
  let seed = 0;
  while (found === null && seed < Number(values.seeds)) {
    seed++;
    found = (await simulate(build, seed, planOf({ seed, steps: 20 }))).complaint;
  }
  if (found === null) unnoticed++;
  console.log(
    `${found === null ? "NOT NOTICED" : `seed ${seed}`}: ${guard.title}${found === null ? "" : `\n    ${found.slice(0, 200)}`}`,
  );
}
console.log(`${unnoticed} of ${GUARDS.length} were not noticed`);
process.exit(unnoticed === 0 ? 0 : 1);
