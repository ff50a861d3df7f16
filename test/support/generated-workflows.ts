/** Workflows made at random (generated-nodes.ts), as definitions that run. */
import {
  type Retry,
  type Step,
  type StepCall,
  type StepOutline,
  type StepScope,
  type StepsOfWorkflow,
  type StepType,
  Suspend,
  type WorkflowDefinition,
} from "../../core/workflows/definition/definition.ts";
import { type Data, first, type Node, sum } from "./generated-nodes.ts";

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
      onError: null,
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
          called: { steps: inner, onError: null },
          startCheck: null,
          resultCheck: null,
        };
      }
      case "guard":
        return guard(node, id, prefix, parents);
      case "ends":
        return ends(node, id, prefix, parents);
      case "bail":
        return bail(id, prefix, parents, node.holds);
      case "broken":
        return work(id, prefix, parents, async () => {
          throw new Error("broken");
        });
    }
  }
  const bail = (id: string, prefix: string, parents: readonly string[], holds: boolean): Step => ({
    ...base(id, prefix, "bail", parents),
    kind: "bail",
    condition: () => holds,
    result: (scope) => ({ ...(scope.data as Data), [`bailed ${id}`]: 1 }),
  });
  const breaks = (id: string, prefix: string, parents: readonly string[], turns: number): Step =>
    work(id, prefix, parents, async () => {
      for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve));
      throw new Error("it never works");
    });
  /** Makes steps as the `onError` of a step or a workflow. */
  function handling(handles: string, make: () => Step[]): Step[] {
    const known = new Set(outline.keys());
    const made = make();
    for (const [path, place] of outline) {
      if (!known.has(path)) outline.set(path, { ...place, handles: [handles, ...(place.handles ?? [])] });
    }
    return made;
  }
  const sub = (id: string, prefix: string, parents: readonly string[], make: () => StepsOfWorkflow): Step => ({
    ...base(id, prefix, "andWorkflow", parents),
    kind: "sub",
    workflowId: "w",
    input: (scope) => scope.data,
    called: make(),
    startCheck: null,
    resultCheck: null,
  });
  function guard(node: Node & { kind: "guard" }, id: string, prefix: string, parents: readonly string[]): Step {
    const path = prefix + id;
    const within = [...parents, path];
    const body = (inside: string) => [
      ...steps(node.steps, `${id}s`, inside, within),
      breaks(`${id}f`, inside, within, node.turns),
    ];
    const handler = (inside: string, above: readonly string[]) => [
      {
        ...base(`${id}c`, inside, "andThen", above),
        kind: "set" as const,
        evaluate: ({ data, error }: StepScope) => ({ ...(data as Data), [`caught ${error?.stepId}`]: 1 }),
      },
      ...steps(node.handler, `${id}h`, inside, above),
    ];
    if (node.of === "sub") {
      const inside = `${path}/`;
      return sub(id, prefix, parents, () => ({
        steps: body(inside),
        onError: handling(inside, () => handler(inside, within)),
      }));
    }
    const own =
      node.of === "step"
        ? breaks(id, prefix, parents, node.turns)
        : { ...base(id, prefix, "andAll", parents), kind: "all" as const, branches: [body(prefix)] };
    return { ...own, onError: handling(path, () => handler(prefix, parents)) };
  }
  function ends(node: Node & { kind: "ends" }, id: string, prefix: string, parents: readonly string[]): Step {
    const inside = `${prefix}${id}/`;
    const within = [...parents, prefix + id];
    const never = (above: readonly string[]) =>
      work(`${id}n`, inside, above, ({ signal }) => {
        return new Promise((_resolve, reject) => {
          if (signal.aborted) reject(new Error("aborted"));
          signal.addEventListener("abort", () => reject(new Error("aborted")));
        });
      });
    const bails = (above: readonly string[]) => [bail(`${id}b`, inside, above, true)];
    const last = (): Step => {
      if (node.of === "list") return bails(within)[0]!;
      const path = `${inside}${id}o`;
      if (node.of === "handler") {
        const broken = breaks(`${id}o`, inside, within, 1);
        return { ...broken, onError: handling(path, () => bails(within)) };
      }
      const type = node.of === "all" ? "andAll" : "andRace";
      const own = base(`${id}o`, inside, type, within);
      const above = [...within, path];
      const branches = node.first ? [bails(above), [never(above)]] : [[never(above)], bails(above)];
      return { ...own, kind: node.of, branches };
    };
    return sub(id, prefix, parents, () => ({
      steps: [...steps(node.steps, `${id}s`, inside, within), last(), breaks(`${id}z`, inside, within, 0)],
      onError: null,
    }));
  }
  return {
    workflowId: "w",
    name: "W",
    hash: "hash",
    outline,
    steps: steps(list, "s", "", []),
    onError: null,
    inputCheck: null,
    resultCheck: null,
    suspendCheck: null,
    resumeCheck: null,
    timeout: null,
    recovery: "resume",
    recoveries: 3,
  };
}
