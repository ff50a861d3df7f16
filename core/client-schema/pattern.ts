/**
 * Matches regular expressions from clients without backtracking. All paths through the pattern are followed in parallel, character
 * by character (Thompson's algorithm), while the native engine tries them one after the other and may take exponential time.
 */
import type { WorkBudget } from "./work.ts";

/*
 * Parses a JavaScript regular expression into a tree. Whatever matches one character (a letter, an escape, a class) stays text:
 * the native engine matches it, because only that engine knows the meaning of `\p{Lu}`.
 */

type Node =
  /** `source` matches exactly one character. */
  | { kind: "one"; source: string }
  | { kind: "sequence"; items: Node[] }
  | { kind: "either"; items: Node[] }
  | { kind: "repeat"; item: Node; minimum: number; maximum: number }
  | { kind: "start" }
  | { kind: "end" }
  | { kind: "word"; edge: boolean }
  | { kind: "look"; item: Node; ahead: boolean; wanted: boolean };

const MAX_DEPTH = 100;
const QUANTIFIER = /[*+?]|\{(\d+)(?:(,)(\d*))?\}/y;
/** Escapes; the last alternative is any character after the backslash. */
const ESCAPE = /\\(?:u\{[0-9a-f]+\}|u[89ab][0-9a-f]{3}|u[0-9a-f]{4}|x[0-9a-f]{2}|c[a-z]|[pP]\{[^}]*\}|[\s\S])/iy;
const SURROGATES = /\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}/y;
const GROUP = /\((?:\?(?::|=|!|<=|<!|<[^>]+>))?/y;

/** @throws Error for an invalid expression, and for back-references, which cannot be matched in linear time */
function parseExpression(source: string, flags: string): Node {
  new RegExp(source, flags);
  return new Reader(source, flags.includes("u")).read();
}

class Reader {
  readonly #source: string;
  readonly #unicode: boolean;
  #at = 0;
  #depth = 0;

  constructor(source: string, unicode: boolean) {
    this.#source = source;
    this.#unicode = unicode;
  }

  read(): Node {
    const node = this.#either();
    if (this.#at < this.#source.length) throw new Error(`cannot be read from character ${this.#at} on`);
    return node;
  }

  #take(expression: RegExp): RegExpExecArray | null {
    expression.lastIndex = this.#at;
    const found = expression.exec(this.#source);
    if (found !== null) this.#at += found[0].length;
    return found;
  }

  #either(): Node {
    const items = [this.#sequence()];
    while (this.#source[this.#at] === "|") {
      this.#at++;
      items.push(this.#sequence());
    }
    return items.length === 1 ? items[0]! : { kind: "either", items };
  }

  #sequence(): Node {
    const items: Node[] = [];
    for (;;) {
      const next = this.#source[this.#at];
      if (next === undefined || next === "|" || next === ")") return { kind: "sequence", items };
      items.push(this.#repeated(this.#item(next)));
    }
  }

  #repeated(item: Node): Node {
    const found = this.#take(QUANTIFIER);
    if (found === null) return item;
    if (this.#source[this.#at] === "?") this.#at++; // lazy or greedy makes no difference to whether it matches
    const [text, first, comma, last] = found;
    if (text === "?") return { kind: "repeat", item, minimum: 0, maximum: 1 };
    const minimum = first === undefined ? (text === "+" ? 1 : 0) : Number(first);
    const maximum =
      first === undefined || (comma !== undefined && last === "") ? Number.POSITIVE_INFINITY : Number(last ?? first);
    return { kind: "repeat", item, minimum, maximum };
  }

  #item(next: string): Node {
    switch (next) {
      case "^":
        this.#at++;
        return { kind: "start" };
      case "$":
        this.#at++;
        return { kind: "end" };
      case "(":
        return this.#group();
      case "[":
        return { kind: "one", source: this.#class() };
      case "\\":
        return this.#escape();
      default: {
        const character = this.#unicode ? String.fromCodePoint(this.#source.codePointAt(this.#at)!) : next;
        this.#at += character.length;
        // Without the flag u these characters need no escape.
        return { kind: "one", source: /[{}\]]/.test(character) ? `\\${character}` : character };
      }
    }
  }

  #group(): Node {
    const opening = this.#take(GROUP)![0];
    if (this.#source[this.#at] === "?" && opening === "(") throw new Error("has an unknown kind of group");
    if (++this.#depth > MAX_DEPTH) throw new Error(`has groups more than ${MAX_DEPTH} levels deep`);
    const item = this.#either();
    this.#depth--;
    this.#at++;
    if (opening === "(?=" || opening === "(?!") return { kind: "look", item, ahead: true, wanted: opening === "(?=" };
    if (opening === "(?<=" || opening === "(?<!")
      return { kind: "look", item, ahead: false, wanted: opening === "(?<=" };
    return item;
  }

  #class(): string {
    const from = this.#at++;
    while (this.#source[this.#at] !== "]") this.#at += this.#source[this.#at] === "\\" ? 2 : 1;
    return this.#source.slice(from, ++this.#at);
  }

  #escape(): Node {
    const next = this.#source[this.#at + 1]!;
    if (next === "b" || next === "B") {
      this.#at += 2;
      return { kind: "word", edge: next === "b" };
    }
    if (/[1-9]/.test(next) || next === "k") throw new Error("must not refer back to a group");
    const found = (this.#unicode ? this.#take(SURROGATES) : null) ?? this.#take(ESCAPE)!;
    return { kind: "one", source: found[0] };
  }
}

/** Most instructions of a pattern: a repetition is expanded as often as it repeats. */
const MAX_INSTRUCTIONS = 20_000;

type Instruction =
  | { kind: "one"; character: CharacterSet }
  | { kind: "fork"; a: number; b: number }
  | { kind: "start" }
  | { kind: "end" }
  | { kind: "done" }
  | { kind: "word"; edge: boolean }
  | { kind: "look"; program: Program; ahead: boolean; wanted: boolean };

type Program = readonly Instruction[];

/** Steps charged for the first use of a character expression, because the native engine compiles it then. */
const COMPILE_STEPS = 1_000;

/** The set of characters that one piece of a pattern matches. */
class CharacterSet {
  readonly #source: string;
  readonly #flags: string;
  readonly #isItself: boolean;
  #expression: RegExp | null = null;
  /** For each ASCII code: 1 in the set, 2 not in the set, 0 not known yet. */
  #known: Uint8Array | null = null;

  constructor(source: string, flags: string) {
    this.#source = source;
    this.#flags = flags;
    this.#isItself = !flags.includes("i") && !/^[.\\[]/.test(source);
  }

  has(text: string, work: WorkBudget): boolean {
    if (this.#isItself) return text === this.#source;
    if (this.#expression === null || this.#known === null) {
      work.spend(COMPILE_STEPS);
      this.#expression = new RegExp(`^(?:${this.#source})$`, this.#flags);
      this.#known = new Uint8Array(128);
    }
    const code = text.length === 1 ? text.charCodeAt(0) : 128;
    if (code >= 128) return this.#expression.test(text);
    if (this.#known[code] === 0) this.#known[code] = this.#expression.test(text) ? 1 : 2;
    return this.#known[code] === 1;
  }
}

export interface Pattern {
  /** Number of instructions. */
  readonly size: number;
  /** Whether it matches anywhere in a text. @throws TooMuchWork */
  test(text: string, work: WorkBudget): boolean;
}

/** @throws Error that describes what is wrong with it */
export function compileExpression(source: string, flags = "u"): Pattern {
  const compiler = createCompiler(flags);
  const program = compiler.compile(parseExpression(source, flags), true);
  const unicode = flags.includes("u");
  return {
    size: compiler.size,
    test(text, work) {
      work.spend(1 + text.length);
      const characters = unicode ? [...text] : text.split("");
      return matches(program, { characters, work, at: 0, step: 1, anywhere: true });
    },
  };
}

function createCompiler(flags: string) {
  const characters = new Map<string, CharacterSet>();
  let size = 0;

  /** @param forward false inside a lookbehind, which is matched backwards */
  function compile(node: Node, forward: boolean): Program {
    const program: Instruction[] = [];
    emit(node, forward, program);
    push(program, { kind: "done" });
    return program;
  }

  function push(program: Instruction[], instruction: Instruction): number {
    if (++size > MAX_INSTRUCTIONS) throw new Error("is too large, with all that it repeats");
    return program.push(instruction) - 1;
  }

  function emit(node: Node, forward: boolean, program: Instruction[]): void {
    switch (node.kind) {
      case "one":
        push(program, { kind: "one", character: characterOf(node.source) });
        return;
      case "sequence":
        for (const item of forward ? node.items : node.items.toReversed()) emit(item, forward, program);
        return;
      case "either":
        emitEither(node.items, forward, program);
        return;
      case "repeat":
        emitRepeat(node, forward, program);
        return;
      case "look": {
        const { ahead, wanted } = node;
        push(program, { kind: "look", program: compile(node.item, ahead), ahead, wanted });
        return;
      }
      default:
        push(program, node);
    }
  }

  function characterOf(source: string): CharacterSet {
    let known = characters.get(source);
    if (known === undefined) {
      known = new CharacterSet(source, flags);
      characters.set(source, known);
    }
    return known;
  }

  function addFork(program: Instruction[]): { kind: "fork"; a: number; b: number } {
    const fork = { kind: "fork" as const, a: 0, b: 0 };
    const at = push(program, fork);
    fork.a = at + 1;
    fork.b = at + 1;
    return fork;
  }

  function emitEither(items: readonly Node[], forward: boolean, program: Instruction[]): void {
    const ends: { a: number; b: number }[] = [];
    for (const [index, item] of items.entries()) {
      const fork = index < items.length - 1 ? addFork(program) : null;
      emit(item, forward, program);
      if (fork === null) continue;
      ends.push(addFork(program));
      fork.b = program.length;
    }
    for (const end of ends) end.a = end.b = program.length;
  }

  function emitRepeat(
    { item, minimum, maximum }: Extract<Node, { kind: "repeat" }>,
    forward: boolean,
    program: Instruction[],
  ): void {
    for (let count = 0; count < minimum; count++) emit(item, forward, program);
    if (maximum === Number.POSITIVE_INFINITY) {
      const at = program.length;
      const fork = addFork(program);
      emit(item, forward, program);
      const back = addFork(program);
      back.a = back.b = at;
      fork.b = program.length;
      return;
    }
    const exits: { b: number }[] = [];
    for (let count = minimum; count < maximum; count++) {
      exits.push(addFork(program));
      emit(item, forward, program);
    }
    for (const exit of exits) exit.b = program.length;
  }

  return {
    get size() {
      return size;
    },
    compile,
  };
}

interface Search {
  readonly characters: readonly string[];
  readonly work: WorkBudget;
  /** The position, between two characters, at which to start. */
  readonly at: number;
  /** 1 forwards, -1 backwards. */
  readonly step: 1 | -1;
  /** Whether the match may also start later. */
  readonly anywhere: boolean;
}

function matches(program: Program, search: Search): boolean {
  const { characters, work, step, anywhere } = search;
  /** The position at which each instruction was reached last. */
  const reached = new Int32Array(program.length).fill(-1);
  work.spend(program.length >> 4);
  let threads = [0];
  for (let at = search.at; ; at += step) {
    const next: number[] = [];
    const character = characters[step === 1 ? at : at - 1];
    const stack = anywhere && at !== search.at ? [...threads, 0] : threads;
    for (let index = stack.pop(); index !== undefined; index = stack.pop()) {
      if (reached[index] === at) continue;
      reached[index] = at;
      work.spend(1);
      const instruction = program[index]!;
      switch (instruction.kind) {
        case "done":
          return true;
        case "one":
          if (character !== undefined && instruction.character.has(character, work)) next.push(index + 1);
          break;
        case "fork":
          stack.push(instruction.b, instruction.a);
          break;
        default:
          if (assertionHolds(instruction, at, search)) stack.push(index + 1);
      }
    }
    if (character === undefined || (next.length === 0 && !anywhere)) return false;
    threads = next;
  }
}

const WORD = /^\w$/;

function assertionHolds(
  instruction: Exclude<Instruction, { kind: "done" | "one" | "fork" }>,
  at: number,
  { characters, work }: Search,
): boolean {
  switch (instruction.kind) {
    case "start":
      return at === 0;
    case "end":
      return at === characters.length;
    case "word":
      return (WORD.test(characters[at - 1] ?? "") !== WORD.test(characters[at] ?? "")) === instruction.edge;
    case "look": {
      const { program, ahead, wanted } = instruction;
      return matches(program, { characters, work, at, step: ahead ? 1 : -1, anywhere: false }) === wanted;
    }
  }
}
