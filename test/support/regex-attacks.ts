/** Texts made to cost a regular expression much: its own pieces, again and again, and an end that does not fit. */
import { parseRegex, type RegexNode } from "./regex-tree.ts";

/** `head`, then `word` as often as there is room, then `tail`. */
export interface Attack {
  readonly head: string;
  readonly word: string;
  readonly tail: string;
}

/** Characters that patterns tell apart. */
const ALPHABET = [..."aAeE0169 \t\n-_.:/@=+,;!\"'\\{}[]()<>&?#%|$*~é"];
/** Where none of these fits, one of all. */
const CHARACTERS = [...ALPHABET, ...Array.from({ length: 0x250 }, (_, code) => String.fromCodePoint(code))];
const TAILS = ["", "\n\u0001"];
/** A repetition that has a smaller bound is no way to make a text long. */
const MANY = 8;
/** Pieces next to each other that are repeated together. */
const TOGETHER = 5;
const MOST_WORDS = 400;
/** What may have to stand before a piece for it to begin there: the end of a word, a sign. */
const BETWEEN = [" ", "-", "a"];

export function attacksOn(pattern: { source: string; flags: string }): Attack[] {
  const tree = parseRegex(pattern);
  const own = toldApart(tree);
  const places = new Map<string, { head: string; word: string }>();
  const add = (head: string, word: string) => {
    if (word !== "" && places.size < MOST_WORDS) places.set(`${head}\u0000${word}`, { head, word });
  };
  for (const character of own) add("", character);
  const walk = (node: RegexNode, head: string): void => {
    if (node.kind === "repeat") {
      if (node.most > MANY) for (const character of own) add(head, sample(node.item, character, true));
      walk(node.item, head);
    } else if (node.kind === "look") walk(node.item, head);
    else if (node.kind === "choice") for (const option of node.options) walk(option, head);
    else if (node.kind === "sequence") {
      const { items } = node;
      items.forEach((item, from) => {
        walk(item, head + items.slice(0, from).map(shortest).join(""));
        for (let to = from + 1; to <= Math.min(items.length, from === 0 ? items.length : from + TOGETHER); to++) {
          for (const character of ["", ...own]) {
            const word = items
              .slice(from, to)
              .map((piece) => sample(piece, character, true))
              .join("");
            add("", word);
            if (from === 0) for (const between of BETWEEN) add("", between + word);
          }
        }
      });
    }
  };
  walk(tree, "");
  for (const first of own.slice(0, 10)) for (const second of own.slice(0, 10)) add("", first + second);
  return [...places.values()].flatMap(({ head, word }) => TAILS.map((tail) => ({ head, word, tail })));
}

export const textOf = ({ head, word, tail }: Attack, length: number): string =>
  head + word.repeat(Math.ceil(length / word.length)) + tail;

/** Characters that fit somewhere, one of those that fit in the same places. */
function toldApart(tree: RegexNode): string[] {
  const sets = setsOf(tree);
  const byPlaces = new Map<string, string>();
  for (const character of ALPHABET) {
    const places = sets.map((set) => (set.fits(character) ? 1 : 0)).join("");
    if (places.includes("1") && !byPlaces.has(places)) byPlaces.set(places, character);
  }
  return [...byPlaces.values()];
}

function setsOf(node: RegexNode): Extract<RegexNode, { kind: "set" }>[] {
  if (node.kind === "set") return [node];
  if (node.kind === "sequence") return node.items.flatMap(setsOf);
  return node.kind === "choice" ? node.options.flatMap(setsOf) : setsOf(node.item);
}

const shortest = (node: RegexNode): string => sample(node, "", false);

/**
 * A text that fits the node, of `wanted` where that fits.
 *
 * @param some whether what may be left out is there once
 */
function sample(node: RegexNode, wanted: string, some: boolean): string {
  if (node.kind === "look") return "";
  if (node.kind === "set") {
    if (wanted !== "" && node.fits(wanted)) return wanted;
    return CHARACTERS.find(node.fits) ?? "";
  }
  if (node.kind === "sequence") return node.items.map((item) => sample(item, wanted, some)).join("");
  if (node.kind === "choice") {
    const samples = node.options.map((option) => sample(option, wanted, some));
    return (wanted === "" ? undefined : samples.find((text) => text.includes(wanted))) ?? samples[0]!;
  }
  const times = Math.max(node.least, some && node.most > 0 ? 1 : 0);
  return sample(node.item, wanted, some).repeat(Math.min(times, 64));
}
