/** The keys of an index's rows: vectors, texts that wait to be embedded, change counters, and the state. */
import { encodeShortText as part } from "../../storage/encoding.ts";
import type { MessagePlace } from "./semantic.ts";

const ROOT = "semantic";

/** What the keys of the vectors of all memories begin with. */
export const ALL_VECTORS = `${ROOT}/vectors/`;
/** What an earlier version kept beside the vectors: copies as bytes, and what was deleted since they were made. */
export const OBSOLETE_ROWS = [`${ROOT}/packs/`, `${ROOT}/deletions/`];

export interface IndexLayout {
  /** Provider, model and dimensions of the vectors. */
  readonly state: string;
  /** Prefix of all vectors, of those of one owner, or of those of one conversation. */
  vectors(owner?: string, conversation?: string): string;
  vector(place: MessagePlace): string;
  /** Prefix of the counters of all owners who ever had a vector. */
  readonly counters: string;
  /** A counter that rises with every vector of the owner that is written, so that caches notice that they are out of date. */
  counter(owner: string): string;
  /** Prefix of the vectors of the owner with this counter. */
  vectorsOfCounter(key: string): string;
  /** Prefix of all waiting rows, of those of one owner, or of those of one conversation. */
  waiting(owner?: string, conversation?: string): string;
  wait(place: MessagePlace): string;
  /** A conversation whose vectors a plugin has yet to delete; sorts before the other waiting rows of the conversation. */
  waitingConversation(owner: string, conversation: string): string;
}

export function createLayout(memory: string): IndexLayout {
  const name = part(memory);
  const below = (kind: string) => (owner?: string, conversation?: string) => {
    const ofAll = `${ROOT}/${kind}/${name}/`;
    if (owner === undefined) return ofAll;
    return conversation === undefined ? `${ofAll}${part(owner)}/` : `${ofAll}${part(owner)}/${part(conversation)}/`;
  };
  const vectors = below("vectors");
  const waiting = below("waiting");
  const counters = below("changes")();
  return {
    state: `${ROOT}/state/${name}`,
    vectors,
    vector: ({ owner, conversation, message }) => `${vectors(owner, conversation)}${part(message)}`,
    counters,
    counter: (owner) => counters + part(owner),
    vectorsOfCounter: (key) => `${vectors()}${key.slice(counters.length)}/`,
    waiting,
    wait: ({ owner, conversation, message }) => `${waiting(owner, conversation)}${part(message)}`,
    waitingConversation: (owner, conversation) => waiting(owner, conversation).slice(0, -1),
  };
}
