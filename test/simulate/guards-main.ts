/**
 * `npm run simulate:guards`: takes each guard of guards.ts away, plays seeds of what it is for until a simulation goes wrong, and prints a
 * row of a table. `--seeds K` is how many (100), and words choose the guards that have them in their titles.
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
const guards = GUARDS.filter(
  ({ title }) => positionals.length === 0 || positionals.some((word) => title.includes(word)),
);
let unnoticed = 0;
console.log("| without the guard | clients | faults | seed | what goes wrong |\n|---|---|---|---|---|");
for (const guard of guards) {
  const build = await buildService([guard]);
  const { clients, faults } = guard.shows;
  let found: string | null = null;
  const before = (guard.seed ?? 1) - 1;
  let seed = before;
  while (found === null && seed < before + Number(values.seeds)) {
    seed++;
    found = (await simulate(build, seed, planOf({ seed, steps: 20, kinds: guard.shows }))).complaint;
  }
  if (found === null) unnoticed++;
  const [at, wrong] = found === null ? ["none", "nothing"] : [seed, found.slice(0, 150).replaceAll("|", "\\|")];
  console.log(`| ${guard.title} | ${clients} | ${faults} | ${at} | ${wrong} |`);
}
console.log(`\n${unnoticed} of ${guards.length} were not noticed`);
process.exit(unnoticed === 0 ? 0 : 1);
