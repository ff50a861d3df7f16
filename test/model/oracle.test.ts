/** The oracle of the model test, on histories made by hand. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Call, History, type Operation, type Reply } from "./history.ts";
import { complaint } from "./oracle.ts";

type Commit = Extract<Call, { kind: "commit" }>["commit"];

/** `expected`: the values that the expected revisions stand for. */
const commit = (commit: Commit, expected: [string, string | null][] = []): Call => ({
  kind: "commit",
  commit,
  expected,
});
const get = (...keys: string[]): Call => ({ kind: "get", keys });
const committed = (revision: number): Reply => ({ kind: "committed", revision });
const row = (key: string, value: string, revision: number) => ({ key, value, revision });
const rows = (...rows: (ReturnType<typeof row> | null)[]): Reply => ({ kind: "rows", rows });
const conflict = (...keys: string[]): Reply => ({ kind: "conflict", keys });
const unknown: Reply = { kind: "unknown", message: "away" };

/** One operation after the other; those of an inner list at once. No reply: the process died. */
function history(...steps: ([Call, Reply | null] | [Call, Reply | null][])[]): Operation[] {
  const history = new History();
  for (const step of steps) {
    const together = (Array.isArray(step[0]) ? step : [step]) as [Call, Reply | null][];
    const begun = together.map(([call]) => history.begin(call));
    together.forEach(([, reply], index) => {
      if (reply !== null) history.end(begun[index]!, reply);
    });
  }
  return history.operations;
}

const putA = (value: string, ...expected: [string, string | null][]) => commit({ put: [["a", value]] }, expected);

const EXPLAINED: Record<string, Operation[]> = {
  "a read sees what was put": history([putA("1"), committed(1)], [get("a", "b"), rows(row("a", "1", 1), null)]),
  "two at once may be in either order": history(
    [
      [putA("1"), committed(1)],
      [putA("2"), committed(2)],
    ],
    [get("a"), rows(row("a", "1", 1))],
  ),
  "a commit without an answer happened": history([putA("1"), unknown], [get("a"), rows(row("a", "1", 1))]),
  "a commit without an answer did not happen": history([putA("1"), unknown], [get("a"), rows(null)]),
  "a commit without an answer happens late": history(
    [putA("1"), null],
    [get("a"), rows(null)],
    [get("a"), rows(row("a", "1", 1))],
  ),
  "who expects what another changes at once may lose": history([
    [putA("1", ["a", null]), committed(1)],
    [putA("2", ["a", null]), conflict("a")],
  ]),
  "additions of several are added up": history(
    [
      [commit({ add: [["n", 1]] }), committed(1)],
      [commit({ add: [["n", 2]] }), committed(1)],
    ],
    [get("n"), rows(row("n", "3", 1))],
  ),
};

const UNEXPLAINED: Record<string, Operation[]> = {
  "an acknowledged commit is missing": history([putA("1"), committed(1)], [get("a"), rows(null)]),
  "an older version is read": history(
    [putA("1"), committed(1)],
    [putA("2"), committed(2)],
    [get("a"), rows(row("a", "1", 1))],
  ),
  "half of a commit is read": history(
    [
      commit({
        put: [
          ["a", "1"],
          ["b", "1"],
        ],
      }),
      unknown,
    ],
    [get("a", "b"), rows(row("a", "1", 1), null)],
  ),
  "both win who expect the same": history([
    [putA("1", ["a", null]), committed(1)],
    [putA("2", ["a", null]), committed(2)],
  ]),
  "each expects the row absent that the other puts": history([
    [putA("1", ["b", null]), committed(1)],
    [commit({ put: [["b", "2"]] }, [["a", null]]), committed(2)],
  ]),
  "a refused commit left something": history(
    [putA("1"), committed(1)],
    [putA("2", ["a", null]), conflict("a")],
    [get("a"), rows(row("a", "2", 2))],
  ),
  "a commit is refused for no reason": history([putA("1", ["a", null]), conflict("a")]),
  "a counter has counted a commit twice": history(
    [commit({ add: [["n", 1]] }), unknown],
    [get("n"), rows(row("n", "2", 1))],
  ),
  "a commit that was retried has happened twice": history(
    [commit({ put: [["a", "1"]], add: [["n", 1]] }, [["a", null]]), unknown],
    [commit({ put: [["a", "2"]], add: [["n", 2]] }, [["a", null]]), committed(2)],
    [get("a", "n"), rows(row("a", "2", 2), row("n", "3", 2))],
  ),
  "a revision is used again for another version": history([putA("1"), committed(1)], [putA("2"), committed(1)]),
  "a version changes its revision": history([putA("1"), committed(1)], [get("a"), rows(row("a", "1", 2))]),
  "a cleared row is still there": history(
    [putA("1"), committed(1)],
    [commit({ clear: ["a"] }), committed(2)],
    [get("a"), rows(row("a", "1", 1))],
  ),
  "a commit shows after its expectation was seen to be false": history(
    [putA("1"), committed(1)],
    [
      [commit({ put: [["b", "2"]] }, [["a", "1"]]), committed(2)],
      [putA("3"), committed(3)],
      [get("a", "b"), rows(row("a", "3", 3), null)],
    ],
    [get("b"), rows(row("b", "2", 2))],
  ),
  "a call is refused as a mistake": history([putA("1"), { kind: "refused", message: "syntax error" }]),
};

test("the oracle of the model test finds an explanation where there is one", () => {
  for (const [name, operations] of Object.entries(EXPLAINED)) assert.equal(complaint(operations), null, name);
});

test("the oracle of the model test complains where no order of the operations explains the replies", () => {
  for (const [name, operations] of Object.entries(UNEXPLAINED)) assert.notEqual(complaint(operations), null, name);
});
