/**
 * `npm run simulate -- --seed N`: plays one simulation and prints its trace, which repeats exactly. `--steps M` (20) is how many clients
 * and faults it has. Where it fails, it is shrunk to a line that becomes a test. `--seeds K` plays so many, from N on, and prints only
 * what fails. `--only 1,2,3` is a part of a plan, as shrinking found it, and `--clients run,task` and `--faults freeze` leave the others
 * out from the beginning. `--earlier` begins each with the rows of an earlier release, as one in four does without it.
 */
import { parseArgs } from "node:util";
import { buildService } from "./build.ts";
import { CLIENT_KINDS } from "./clients.ts";
import { BREAKING, type Case, planOf, shrink } from "./plan.ts";
import { simulate } from "./simulation.ts";

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: "1" },
    steps: { type: "string", default: "20" },
    seeds: { type: "string" },
    only: { type: "string" },
    clients: { type: "string" },
    faults: { type: "string" },
    earlier: { type: "boolean" },
    quiet: { type: "boolean" },
  },
});
const cpuSeconds = () => {
  const { user, system } = process.cpuUsage();
  return Math.round((user + system) / 1e6);
};
/** @throws Error for a name that is none of them */
function named<Name extends string>(list: string | undefined, all: readonly Name[]): Name[] | undefined {
  return list?.split(",").map((name) => {
    const found = all.find((known) => known === name);
    if (found === undefined) throw new Error(`${name} is none of ${[...new Set(all)]}`);
    return found;
  });
}
const clients = named(values.clients, CLIENT_KINDS);
const faults = named(values.faults, BREAKING);
const kinds = { ...(clients && { clients }), ...(faults && { faults }) };
const chosen = `${clients ? ` --clients ${clients}` : ""}${faults ? ` --faults ${faults}` : ""}${values.earlier ? " --earlier" : ""}`;
const build = await buildService();
const first = Number(values.seed);
const steps = Number(values.steps);
const isQuiet = values.seeds !== undefined || values.quiet === true;
let failed = 0;
for (let seed = first; seed < first + Number(values.seeds ?? 1); seed++) {
  const one: Case = {
    seed,
    steps,
    kinds,
    earlier: values.earlier,
    ...(values.only !== undefined && { only: values.only.split(",").map(Number) }),
  };
  const {
    digest,
    complaint,
    steps: played,
  } = await simulate(build, seed, planOf(one), isQuiet ? {} : { onLine: console.log });
  const count = seed - first + 1;
  if (values.seeds !== undefined && count % 250 === 0)
    console.log(`${count} seeds in ${cpuSeconds()} s of processor time`);
  if (complaint === null) {
    if (!isQuiet) console.log(`seed ${seed}: ${played} steps, trace ${digest}`);
    continue;
  }
  failed++;
  console.log(`seed ${seed}: ${complaint}`);
  const shrunk = await shrink(build, one);
  console.log(`  --seed ${seed} --steps ${steps}${chosen} --only ${shrunk.only}`);
  console.log(`  ${JSON.stringify({ seed, actions: planOf(shrunk) })}`);
}
console.log(`${failed} failed, in ${cpuSeconds()} s of processor time`);
process.exit(failed === 0 ? 0 : 1);
