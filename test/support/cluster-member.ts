/**
 * A process that runs workflows on a shared PostgreSQL, as `penstock serve` does, with lease times that a test chooses. It does what it
 * is asked over its channel, and says what it logs.
 */
import { pino } from "pino";
import { Membership, type MembershipTimes, nameProcess } from "../../core/storage/membership.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import { CALL, processesOf } from "./workflow-process.ts";

export interface MemberOptions {
  readonly url: string;
  readonly manifest: object;
  readonly plugins: Record<string, string>;
  readonly times: MembershipTimes;
  /** As if it ran on a machine of its own: nobody else can look at its process. */
  readonly elsewhere?: boolean;
}

export type Asked =
  | { readonly what: "execute"; readonly workflow: string; readonly id: string }
  | { readonly what: "status"; readonly workflow: string; readonly id: string };

const options: MemberOptions = JSON.parse(process.argv[2]!);
// It is killed in the end.
const test = { after: () => {} };
const logger = pino({ level: "info" }, { write: (line: string) => process.send!({ log: JSON.parse(line).msg }) });

const start = await processesOf(test as never, options.manifest, { plugins: options.plugins });
const store = await openPostgresStore(options.url, { logger });
const name = options.elsewhere ? () => nameProcess().split(".").at(-1)! : nameProcess;
const membership = new Membership(store, { logger, times: options.times, name });
const { access } = await start(store, { logger, membership });

async function answer(asked: Asked): Promise<unknown> {
  switch (asked.what) {
    case "execute":
      return JSON.parse(
        (await access.execute(asked.workflow, { input: { n: 1 }, options: { executionId: asked.id } }, CALL)).json,
      );
    case "status":
      return (await access.state(asked.workflow, asked.id)).status;
  }
}

process.on("message", async ({ number, asked }: { number: number; asked: Asked }) => {
  const reply = await answer(asked).then(
    (value) => ({ number, value }),
    (error) => ({ number, error: String(error) }),
  );
  process.send!(reply);
});
process.send!({ ready: true });
