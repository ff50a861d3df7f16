/** The official clients of AG-UI, 1.0 and the last before it, over HTTP: an agent of theirs keeps the thread as a user interface does. */

// biome-ignore lint/suspicious/noExplicitAny: the two have no common type
type Loose = any;

/** The packages, and whether they name their version. */
export const CLIENTS = { "@ag-ui/client": true, "ag-ui-client-0": false } as const;

interface AgUiRun {
  /** All that came, in order. */
  readonly events: Loose[];
  /** What the client says of the last event: the outcome of its subscriber. */
  readonly finished: Loose;
  /** The error that the client was told. */
  readonly failed: Loose;
}

interface AgUiClient {
  /** Its `HttpAgent`. */
  readonly agent: Loose;
  /** Adds a message of the user, if there is one, and runs. @throws what the client throws */
  run(text: string | null, parameters?: Loose): Promise<AgUiRun>;
}

let count = 0;

export async function agUiClient(name: string, url: string, options: Loose = {}): Promise<AgUiClient> {
  const { HttpAgent } = (await import(name)) as Loose;
  const agent = new HttpAgent({ url, ...options });
  return {
    agent,
    async run(text, parameters = {}) {
      if (text !== null) {
        count += 1;
        agent.addMessage({ id: `user-${count}`, role: "user", content: text });
      }
      const run = { events: [] as Loose[], finished: undefined as Loose, failed: undefined as Loose };
      await agent.runAgent(parameters, {
        onEvent: ({ event }: Loose) => void run.events.push(event),
        onRunFinishedEvent: (given: Loose) => {
          run.finished = given;
        },
        onRunErrorEvent: ({ event }: Loose) => {
          run.failed = event;
        },
      });
      return run;
    },
  };
}

/** The types of events, with those of a block of text as one. */
export const typesOf = ({ events }: AgUiRun): string[] =>
  events
    .map(({ type }) => type as string)
    .filter((type, index, all) => !type.endsWith("_CONTENT") || all[index - 1] !== type);
