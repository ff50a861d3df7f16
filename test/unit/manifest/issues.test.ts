import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  formatIssue,
  formatPath,
  type Issue,
  parsePath,
  sortIssues,
  suggest,
} from "../../../core/manifest/manifest.ts";

const issue = (line: number, column: number, message = "is wrong"): Issue => {
  return { severity: "error", file: "service.yaml", line, column, path: "agents.a", message };
};

describe("issues", () => {
  it("issues of a manifest are printed with file, line, column and path", () => {
    assert.equal(formatIssue(issue(42, 7)), "service.yaml:42:7  agents.a: is wrong");
    assert.equal(formatIssue({ ...issue(1, 1), path: "" }), "service.yaml:1:1  is wrong");
  });

  it("issues of a manifest are sorted by place, and one that is said twice is kept once", () => {
    const sorted = sortIssues([issue(10, 1), issue(2, 9), issue(2, 3), issue(10, 1)]);
    assert.deepEqual(
      sorted.map(({ line, column }) => [line, column]),
      [
        [2, 3],
        [2, 9],
        [10, 1],
      ],
    );
  });
});

describe("paths", () => {
  it("paths in a manifest are written as people read them, and read back", () => {
    const path = ["tools", "x.y", "http", "query", 'a"b', 0, "p-q"];
    assert.equal(formatPath(path), 'tools["x.y"].http.query["a\\"b"][0].p-q');
    assert.deepEqual(parsePath(formatPath(path)), path);
    assert.deepEqual(parsePath("agents.a.tools.0"), ["agents", "a", "tools", "0"]);
    assert.deepEqual(parsePath(""), []);
    assert.equal(parsePath("a["), null);
  });
});

describe("suggest", () => {
  const known = ["model", "memory", "andThen", "andWhen", "port"];
  it("the suggestion of a name finds the near name, whatever the case, and swapped letters", () => {
    assert.equal(suggest("modle", known), "model");
    assert.equal(suggest("anThen", known), "andThen");
    assert.equal(suggest("PORT", known), "port");
    assert.equal(suggest("prot", known), "port");
  });
  it("the suggestion of a name is silent when nothing is near, and about very short names", () => {
    assert.equal(suggest("temperature", known), undefined);
    assert.equal(suggest("x", ["y"]), undefined);
    assert.equal(suggest("", known), undefined);
  });
});
