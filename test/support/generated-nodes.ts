/** Workflows made at random as plain data, and a plain evaluation that says what must come of them. */
import fc from "fast-check";

/** A step without its id. Data are objects of numbers: every step adds a key of its own. */
export type Node =
  | { kind: "set"; add: number }
  /** `fails`: times that it fails before it gives something; `asks`: suspends once. */
  | { kind: "work"; add: number; fails: number; asks: boolean; turns: number }
  | { kind: "tap"; fails: boolean }
  | { kind: "suspend" }
  | { kind: "when"; odd: boolean; then: Node[]; else: Node[] | null }
  /** `fails`: times that its last branch fails, for which it is tried again as a whole. */
  | { kind: "all"; branches: Node[][]; fails: number }
  /** One branch succeeds, the others fail. */
  | { kind: "race"; winner: Node[]; losers: number; first: boolean }
  | { kind: "sub"; steps: Node[] }
  /** Its steps end with one that fails for good, and `handler` takes their place: as a step, a container, or a workflow. */
  | { kind: "guard"; of: "step" | "all" | "sub"; steps: Node[]; turns: number; handler: Node[] }
  /** Ends its workflow, from where `of` says, beside a step that never ends. */
  | { kind: "ends"; of: "list" | "all" | "race" | "handler"; first: boolean; steps: Node[] }
  | { kind: "bail"; holds: boolean }
  /** Fails for good. */
  | { kind: "broken" };

export type Data = Record<string, number>;

const { nodes } = fc.letrec<{ nodes: Node[]; node: Node }>((tie) => ({
  nodes: fc.array(tie("node"), { minLength: 1, maxLength: 4, depthIdentifier: "nodes" }),
  node: fc.oneof(
    { maxDepth: 3, depthIdentifier: "nodes" },
    fc.record({ kind: fc.constant("set" as const), add: fc.integer({ min: 0, max: 9 }) }),
    fc.record({
      kind: fc.constant("work" as const),
      add: fc.integer({ min: 0, max: 9 }),
      fails: fc.integer({ min: 0, max: 2 }),
      asks: fc.boolean(),
      turns: fc.integer({ min: 0, max: 3 }),
    }),
    fc.record({ kind: fc.constant("tap" as const), fails: fc.boolean() }),
    fc.constant({ kind: "suspend" as const }),
    fc.record({
      kind: fc.constant("when" as const),
      odd: fc.boolean(),
      then: tie("nodes"),
      else: fc.option(tie("nodes")),
    }),
    fc.record({
      kind: fc.constant("all" as const),
      branches: fc.array(tie("nodes"), { minLength: 1, maxLength: 3 }),
      fails: fc.integer({ min: 0, max: 2 }),
    }),
    fc.record({
      kind: fc.constant("race" as const),
      winner: tie("nodes"),
      losers: fc.integer({ min: 0, max: 2 }),
      first: fc.boolean(),
    }),
    fc.record({ kind: fc.constant("sub" as const), steps: tie("nodes") }),
    fc.record({
      kind: fc.constant("guard" as const),
      of: fc.constantFrom("step", "all", "sub"),
      steps: tie("nodes"),
      turns: fc.integer({ min: 0, max: 3 }),
      handler: tie("nodes"),
    }),
    fc.record({
      kind: fc.constant("ends" as const),
      of: fc.constantFrom("list", "all", "race", "handler"),
      first: fc.boolean(),
      steps: tie("nodes"),
    }),
    fc.constant({ kind: "bail" as const, holds: false }),
  ) as fc.Arbitrary<Node>,
}));

/** Some of them fail at the end of the text, and some bail before they would. */
export const workflow: fc.Arbitrary<Node[]> = fc.tuple(nodes, fc.integer({ min: 0, max: 7 })).map(([list, end]) => {
  if (end > 2) return list;
  return end > 0 ? [...list, { kind: "broken" }] : [...list, { kind: "bail", holds: true }, { kind: "broken" }];
});

export const first = (list: readonly Node[], place: string) =>
  list.map((node, index) => ({ node, id: `${place}${index}` }));
export const sum = (data: Data) => Object.values(data).reduce((a, b) => a + b, 0);

export interface Expected {
  /** Null when it fails. */
  result: Data | null;
  error: string | null;
  state: Data;
}

/** What ends a workflow early. */
class Bailed {
  readonly data: Data;
  constructor(data: Data) {
    this.data = data;
  }
}

function untilBailed(work: () => Data): Data {
  try {
    return work();
  } catch (thrown) {
    if (thrown instanceof Bailed) return thrown.data;
    throw thrown;
  }
}

/** What a person with a pencil would make of it. */
export function evaluate(list: readonly Node[], input: Data): Expected {
  const state: Data = {};
  let error: string | null = null;
  const steps = (inner: readonly Node[], place: string, prefix: string, data: Data): Data =>
    first(inner, place).reduce((given, { node, id }) => (error === null ? step(node, id, prefix, given) : given), data);
  function step(node: Node, id: string, prefix: string, data: Data): Data {
    const path = prefix + id;
    switch (node.kind) {
      case "set":
        return { ...data, [id]: node.add + sum(data) };
      case "work": {
        if (node.asks) state[`asked ${path}`] = 1;
        state[path] = node.add;
        return { ...data, [id]: node.add, ...(node.asks && { [`answer ${path}`]: 1 }) };
      }
      case "tap":
        if (!node.fails) state[path] = 1;
        return data;
      case "suspend":
        return { ...data, [`answer ${path}`]: 1 };
      case "when": {
        const branch = (sum(data) % 2 === 1) === node.odd ? node.then : node.else;
        return branch === null ? data : steps(branch, `${id}${branch === node.then ? "t" : "e"}`, prefix, data);
      }
      case "all": {
        const given = node.branches.map((branch, index) => steps(branch, `${id}b${index}`, prefix, data));
        const last = node.fails > 0 ? [{ ...data, [`${id}f`]: 1 }] : [];
        if (node.fails > 0) state[`${path}f`] = 1;
        return Object.assign({}, ...given, ...last);
      }
      case "race":
        return steps(node.winner, `${id}w`, prefix, data);
      case "sub":
        return untilBailed(() => steps(node.steps, `${id}s`, `${path}/`, data));
      case "guard": {
        const inside = node.of === "sub" ? `${path}/` : prefix;
        const run = () => {
          if (node.of !== "step") steps(node.steps, `${id}s`, inside, data);
          const failed = node.of === "step" ? path : `${inside}${id}f`;
          return steps(node.handler, `${id}h`, inside, { ...data, [`caught ${failed}`]: 1 });
        };
        return node.of === "sub" ? untilBailed(run) : run();
      }
      case "ends":
        return { ...steps(node.steps, `${id}s`, `${path}/`, data), [`bailed ${id}b`]: 1 };
      case "bail":
        if (node.holds) throw new Bailed({ ...data, [`bailed ${id}`]: 1 });
        return data;
      case "broken":
        error = path;
        return data;
    }
  }
  const result = untilBailed(() => steps(list, "s", "", input));
  return { result: error === null ? result : null, error, state };
}
