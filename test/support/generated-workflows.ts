/** Workflows made at random, as definitions that run, and a plain evaluation that says what must come of them. */
import fc from "fast-check";
import {
  type Retry,
  type Step,
  type StepCall,
  type StepOutline,
  type StepScope,
  type StepType,
  Suspend,
  type WorkflowDefinition,
} from "../../core/workflows/definition/definition.ts";

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
  /** Fails for good. */
  | { kind: "broken" };

type Data = Record<string, number>;

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
  ) as fc.Arbitrary<Node>,
}));

/** Some of them fail at the end of the text. */
export const workflow: fc.Arbitrary<Node[]> = fc
  .tuple(nodes, fc.integer({ min: 0, max: 4 }))
  .map(([list, broken]) => (broken === 0 ? [...list, { kind: "broken" }] : list));

const first = (list: readonly Node[], place: string) => list.map((node, index) => ({ node, id: `${place}${index}` }));
const sum = (data: Data) => Object.values(data).reduce((a, b) => a + b, 0);

export interface Expected {
  /** Null when it fails. */
  result: Data | null;
  error: string | null;
  state: Data;
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
        return steps(node.steps, `${id}s`, `${path}/`, data);
      case "broken":
        error = path;
        return data;
    }
  }
  const result = steps(list, "s", "", input);
  return { result: error === null ? result : null, error, state };
}

const ONCE: Retry = { attempts: 0, delay: 0, backoff: "fixed", maxDelay: null, jitter: false, unless: null };
const TRIES: Retry = { attempts: 4, delay: 0, backoff: "fixed", maxDelay: null, jitter: false, unless: null };

/** The same as a definition. @param failed how often each step has failed: its steps count in it */
export function definitionOf(list: readonly Node[], failed: Map<string, number>): WorkflowDefinition {
  const outline = new Map<string, StepOutline>();
  const base = (id: string, prefix: string, type: StepType, parents: readonly string[], retry = ONCE) => {
    const path = prefix + id;
    const index = parents.length === 0 ? outline.size : outline.get(parents[0]!)!.index;
    outline.set(path, { path, id, name: id, type, index, order: outline.size, parents });
    return {
      id,
      path,
      type,
      inputCheck: null,
      outputCheck: null,
      suspendCheck: null,
      resumeCheck: null,
      retry,
      timeout: null,
    };
  };
  /** Fails the first times, whichever process runs it. */
  const failing = (path: string, times: number) => {
    const count = failed.get(path) ?? 0;
    if (count >= times) return;
    failed.set(path, count + 1);
    throw new Error(`${path} fails`);
  };
  const work = (
    id: string,
    prefix: string,
    parents: readonly string[],
    run: (call: StepCall, path: string) => unknown,
    { retry = ONCE, readOnly = false } = {},
  ): Step => ({
    ...base(id, prefix, "andThen", parents, retry),
    kind: "work",
    tap: false,
    readOnly,
    run: (call) => run(call, prefix + id),
  });
  const steps = (inner: readonly Node[], place: string, prefix: string, parents: readonly string[]): Step[] =>
    first(inner, place).map(({ node, id }) => step(node, id, prefix, parents));
  function step(node: Node, id: string, prefix: string, parents: readonly string[]): Step {
    const within = [...parents, prefix + id];
    const dataOf = (scope: StepScope) => scope.data as Data;
    switch (node.kind) {
      case "set":
        return {
          ...base(id, prefix, "andThen", parents),
          kind: "set",
          evaluate: (scope) => ({ ...dataOf(scope), [id]: node.add + sum(dataOf(scope)) }),
        };
      case "work":
        return work(
          id,
          prefix,
          parents,
          async (call, path) => {
            for (let turn = 0; turn < node.turns; turn++) await new Promise((resolve) => setImmediate(resolve));
            failing(path, node.fails);
            if (node.asks && call.resume === null) {
              call.setState({ [`asked ${path}`]: 1 });
              return new Suspend("asks", null);
            }
            call.setState({ [path]: node.add });
            return { ...dataOf(call.scope), [id]: node.add, ...(call.resume?.data as Data) };
          },
          { retry: TRIES, readOnly: node.add % 2 === 0 },
        );
      case "tap":
        return {
          ...base(id, prefix, "andTap", parents),
          kind: "work",
          tap: true,
          readOnly: node.fails,
          run(call) {
            if (node.fails) throw new Error("no tap");
            call.setState({ [prefix + id]: 1 });
            return null;
          },
        };
      case "suspend":
        return { ...base(id, prefix, "andThen", parents), kind: "suspend", reason: () => "asks", data: () => null };
      case "when": {
        const own = base(id, prefix, "andWhen", parents);
        return {
          ...own,
          kind: "when",
          condition: (scope) => (sum(dataOf(scope)) % 2 === 1) === node.odd,
          then: steps(node.then, `${id}t`, prefix, within),
          else: node.else === null ? null : steps(node.else, `${id}e`, prefix, within),
        };
      }
      case "all": {
        const own = base(id, prefix, "andAll", parents, node.fails > 0 ? TRIES : ONCE);
        const branches = node.branches.map((branch, index) => steps(branch, `${id}b${index}`, prefix, within));
        if (node.fails > 0) {
          const last = work(`${id}f`, prefix, within, async (call, path) => {
            failing(path, node.fails);
            call.setState({ [path]: 1 });
            return { ...dataOf(call.scope), [`${id}f`]: 1 };
          });
          branches.push([last]);
        }
        return { ...own, kind: "all", branches };
      }
      case "race": {
        const own = base(id, prefix, "andRace", parents);
        const winner = steps(node.winner, `${id}w`, prefix, within);
        const losers = Array.from({ length: node.losers }, (_, index) => [
          work(`${id}l${index}`, prefix, within, async (call, path) => {
            call.setState({ [path]: 1 });
            await new Promise((resolve) => setImmediate(resolve));
            throw new Error("loses");
          }),
        ]);
        return { ...own, kind: "race", branches: node.first ? [winner, ...losers] : [...losers, winner] };
      }
      case "sub": {
        const own = base(id, prefix, "andWorkflow", parents);
        const inner = steps(node.steps, `${id}s`, `${prefix}${id}/`, within);
        return {
          ...own,
          kind: "sub",
          workflowId: "w",
          input: (scope) => scope.data,
          steps: inner,
          startCheck: null,
          resultCheck: null,
        };
      }
      case "broken":
        return work(id, prefix, parents, async () => {
          throw new Error("broken");
        });
    }
  }
  return {
    workflowId: "w",
    name: "W",
    hash: "hash",
    outline,
    steps: steps(list, "s", "", []),
    inputCheck: null,
    resultCheck: null,
    suspendCheck: null,
    resumeCheck: null,
    timeout: null,
    recovery: "resume",
    recoveries: 3,
  };
}
