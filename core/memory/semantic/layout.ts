/** The keys of an index's rows: vectors, their blocks, texts that wait to be embedded, change counters, and the state. */
import { encodeNumber, encodeShortText as part } from "../../storage/encoding.ts";
import type { MessagePlace } from "./semantic.ts";

const ROOT = "semantic";

/** What the keys of the vectors of all memories begin with. */
export const ALL_VECTORS = `${ROOT}/vectors/`;

export interface IndexLayout {
  /** Provider, model and dimensions of the vectors. */
  readonly state: string;
  /** Prefix of all vectors, of those of one owner, or of those of one conversation. */
  vectors(owner?: string, conversation?: string): string;
  vector(place: MessagePlace): string;
  /** Prefix of all that is kept beside the vectors to read them fast. */
  readonly packs: string;
  /** Prefix of the counters of all owners who ever had a vector. */
  readonly counters: string;
  /** Prefix of the counters of deletions. */
  readonly deletions: string;
  of(owner: string): OwnerKeys;
  /** From the key of one of an owner's counters. */
  ofCounter(key: string): OwnerKeys;
  /** Prefix of all waiting rows, of those of one owner, or of those of one conversation. */
  waiting(owner?: string, conversation?: string): string;
  wait(place: MessagePlace): string;
  /** A conversation whose vectors a plugin has yet to delete; sorts before the other waiting rows of the conversation. */
  waitingConversation(owner: string, conversation: string): string;
}

/** The rows of one owner. */
export interface OwnerKeys {
  /** Prefix of the vectors. What follows, conversation and message, is the short key of a vector. */
  readonly vectors: string;
  /** A counter that rises with every vector that is written, so that caches notice that they are out of date. */
  readonly changes: string;
  /** A counter of deletions since the blocks were last cleaned of what was deleted (block-cleaner.ts). */
  readonly deletions: string;
  /** How far the vectors are packed into blocks (packer.ts). Absent: not at all. */
  readonly pack: string;
  /** Prefix of the blocks, which are numbered. */
  readonly blocks: string;
  block(number: number): string;
  /** Prefix of the short keys of vectors that were written since the blocks. */
  readonly recent: string;
}

/** What the short keys of a conversation's vectors begin with. */
export const shortPrefix = (conversation: string): string => `${part(conversation)}/`;
export const shortKey = ({ conversation, message }: Omit<MessagePlace, "owner">): string =>
  `${shortPrefix(conversation)}${part(message)}`;

export function createLayout(memory: string): IndexLayout {
  const name = part(memory);
  const below = (kind: string) => (owner?: string, conversation?: string) => {
    const ofAll = `${ROOT}/${kind}/${name}/`;
    if (owner === undefined) return ofAll;
    return conversation === undefined ? `${ofAll}${part(owner)}/` : `${ofAll}${part(owner)}/${part(conversation)}/`;
  };
  const vectors = below("vectors");
  const packs = `${ROOT}/packs/${name}/`;
  const counters = `${ROOT}/changes/${name}/`;
  const deletions = `${ROOT}/deletions/${name}/`;
  const ofPart = (owner: string): OwnerKeys => ({
    vectors: `${vectors()}${owner}/`,
    changes: counters + owner,
    deletions: deletions + owner,
    pack: `${packs}${owner}/state`,
    blocks: `${packs}${owner}/block/`,
    block: (number) => `${packs}${owner}/block/${encodeNumber(number)}`,
    recent: `${packs}${owner}/recent/`,
  });
  const waiting = below("waiting");
  return {
    state: `${ROOT}/state/${name}`,
    vectors,
    vector: ({ owner, conversation, message }) => `${vectors(owner, conversation)}${part(message)}`,
    packs,
    counters,
    deletions,
    of: (owner) => ofPart(part(owner)),
    ofCounter: (key) => ofPart(key.slice(key.lastIndexOf("/") + 1)),
    waiting,
    wait: ({ owner, conversation, message }) => `${waiting(owner, conversation)}${part(message)}`,
    waitingConversation: (owner, conversation) => waiting(owner, conversation).slice(0, -1),
  };
}
