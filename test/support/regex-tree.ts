/** A regular expression as a tree: as much of it as it takes to write texts that fit its parts. */

export type RegexNode =
  | { readonly kind: "set"; fits(character: string): boolean }
  | { readonly kind: "sequence"; readonly items: readonly RegexNode[] }
  | { readonly kind: "choice"; readonly options: readonly RegexNode[] }
  | { readonly kind: "repeat"; readonly item: RegexNode; readonly least: number; readonly most: number }
  /** An assertion: it takes no character, what stands in it may cost time all the same. */
  | { readonly kind: "look"; readonly item: RegexNode };

const QUANTIFIER = /^(?:([*+?])|\{(\d+)(?:(,)(\d*))?\})\??/;
const GROUP = /^\((\?:|\?=|\?!|\?<=|\?<!|\?<\w+>)?/;
const ESCAPE = /^\\(?:u\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|c[A-Z]|[pP]\{[^}]*\}|k<\w+>|[\s\S])/;
const CLASS = /^\[(?:\\[\s\S]|[^\]\\])*\]/;

export function parseRegex({ source, flags }: { source: string; flags: string }): RegexNode {
  const setFlags = flags.replace(/[gy]/g, "");
  let at = 0;
  const rest = () => source.slice(at);

  function choice(): RegexNode {
    const options = [sequence()];
    while (source[at] === "|") {
      at++;
      options.push(sequence());
    }
    return options.length === 1 ? options[0]! : { kind: "choice", options };
  }

  function sequence(): RegexNode {
    const items: RegexNode[] = [];
    while (at < source.length && source[at] !== "|" && source[at] !== ")") {
      const item = quantified(atom());
      if (item !== null) items.push(item);
    }
    return { kind: "sequence", items };
  }

  function quantified(item: RegexNode | null): RegexNode | null {
    const [text, sign, low, comma, high] = QUANTIFIER.exec(rest()) ?? [];
    if (text === undefined || item === null) return item;
    at += text.length;
    if (sign !== undefined)
      return { kind: "repeat", item, least: sign === "+" ? 1 : 0, most: sign === "?" ? 1 : Number.POSITIVE_INFINITY };
    const most = comma === undefined ? Number(low) : high === "" ? Number.POSITIVE_INFINITY : Number(high);
    return { kind: "repeat", item, least: Number(low), most };
  }

  /** Null for what stands for no character. */
  function atom(): RegexNode | null {
    const character = source[at]!;
    if (character === "^" || character === "$") {
      at++;
      return null;
    }
    if (character === "(") {
      const [text, type = ""] = GROUP.exec(rest())!;
      at += text.length;
      const item = choice();
      at++;
      return /^\?(?:=|!|<=|<!)$/.test(type) ? { kind: "look", item } : item;
    }
    const [text] = (character === "[" ? CLASS : character === "\\" ? ESCAPE : /^[\s\S]/).exec(rest())!;
    at += text.length;
    if (/^\\(?:[bB]|[1-9]|k<)/.test(text)) return null;
    const set = new RegExp(`^${text}$`, setFlags);
    return { kind: "set", fits: (given) => set.test(given) };
  }

  const tree = choice();
  if (at !== source.length) throw new Error(`cannot read ${source} from ${at} on`);
  return tree;
}
