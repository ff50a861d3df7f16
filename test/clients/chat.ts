/** The chat that the hooks of the AI SDK are made of, without a framework around it: each version's own. */
import type * as Ai from "ai";

export const CLIENTS = ["ai-5", "ai-6.0.0", "ai", "ai-7"] as const;

// biome-ignore lint/suspicious/noExplicitAny: four versions of one library, each with types of its own
type Loose = any;

interface Chat {
  readonly messages: Loose[];
  readonly status: string;
  readonly error: Error | undefined;
  sendMessage(message: object, options?: object): Promise<void>;
  regenerate(options?: object): Promise<void>;
  resumeStream(options?: object): Promise<void>;
  stop(): Promise<void>;
  addToolOutput(output: object): Promise<void>;
}

/** Loads one version of the client. */
export const load = async (name: (typeof CLIENTS)[number] | "ai-7"): Promise<typeof Ai> => import(name);

/**
 * @param posted takes every body that the client posts
 * @param settings of the hook
 */
export function chatOf(ai: typeof Ai, url: string, posted: Loose[] = [], settings: object = {}): Chat {
  const { AbstractChat, DefaultChatTransport } = ai as Loose;
  const state = {
    status: "ready",
    error: undefined,
    messages: [] as Loose[],
    pushMessage: (message: Loose) => void state.messages.push(message),
    popMessage: () => void state.messages.pop(),
    replaceMessage: (index: number, message: Loose) => {
      state.messages[index] = structuredClone(message);
    },
    snapshot: (value: Loose) => structuredClone(value),
  };
  const transport = new DefaultChatTransport({
    api: url,
    fetch: (input: string, init: RequestInit) => {
      posted.push(JSON.parse(String(init.body)));
      return fetch(input, init);
    },
  });
  class PlainChat extends (AbstractChat as new (init: object) => Loose) {}
  return new PlainChat({ state, transport, onError: () => undefined, ...settings }) as Chat;
}
