/** What clients of the chaos do, one visit after the other. */
import { setTimeout as sleep } from "node:timers/promises";
import { caseSeed, randomOf } from "../fuzz/random.ts";
import { Broken, type Client, Refused } from "./calls.ts";
import { save, talk } from "./conversations.ts";
import { approve, cancel, execute, follow, stream } from "./executions.ts";
import { ask, chat, keep, task } from "./runs.ts";

type Visits = readonly (readonly [weight: number, visit: (client: Client) => Promise<void>])[];

/** How often each is made, against the others. */
const VISITS: Visits = [
  [6, execute],
  [4, approve],
  [3, follow],
  [3, stream],
  [2, cancel],
  [5, save],
  [4, talk],
];

/** With runs of agents, which are kept, beside. */
export const ALL_VISITS: Visits = [...VISITS, [4, keep], [3, task], [3, ask], [3, chat]];

/** One visit after the other, until the load is over. */
export async function work(client: Client, pause: number, visits = VISITS): Promise<void> {
  const { knowledge, random } = client;
  while (client.goes()) {
    // At moments of chance, as often as the rate says.
    await sleep(-Math.log(1 - random.next()) * pause);
    const visit = random.weighted(visits);
    const outcome = await visit(client).then(
      () => "answered",
      (error: Error) => {
        if (error instanceof Broken) return "broken";
        if (error instanceof Refused) return `refused: ${error.message.slice(0, 80)}`;
        knowledge.wrong.push(`${visit.name}: ${error.stack}`);
        return "wrong";
      },
    );
    const name = `${visit.name}: ${outcome}`;
    knowledge.outcomes.set(name, (knowledge.outcomes.get(name) ?? 0) + 1);
  }
}

export function createClients(
  { seed, ...shared }: Pick<Client, "cluster" | "knowledge" | "goes"> & { readonly seed: number },
  count: number,
): Client[] {
  let number = 0;
  const next = () => ++number;
  return Array.from({ length: count }, (_, index) => {
    return { ...shared, random: randomOf(caseSeed(seed, index)), name: `c${index}`, next };
  });
}
