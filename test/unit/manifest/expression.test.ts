import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  compileCondition,
  compileExpression,
  compileTemplate,
  ExpressionError,
  isTemplate,
  SCOPES,
} from "../../../core/manifest/expression.ts";

const SCOPE = {
  data: {
    n: 2.5,
    i: 3,
    ok: true,
    list: [1, 2, 3],
    text: "xyz",
    none: null,
    mixed: ["a", 3, null],
    date: "2024-05-01T10:00:00Z",
  },
  input: { city: "Ghent" },
  state: {},
  context: {},
  user: null,
  steps: { total: { x: 5 }, "add-tax": { x: 1 } },
  resume: null,
};

function evaluate(value: unknown, scope: Record<string, unknown> = SCOPE): unknown {
  const compiled = compileTemplate(value, SCOPES.workflow);
  if ("problem" in compiled) throw new Error(compiled.problem);
  return compiled.evaluate(scope);
}

const problemOf = (value: unknown) => {
  const compiled = compileTemplate(value, SCOPES.workflow);
  assert.ok("problem" in compiled, `${JSON.stringify(value)} should not compile`);
  return compiled;
};

describe("numbers in expressions are JSON numbers", () => {
  const cases: [string, unknown][] = [
    ["data.i + 1", 4],
    ["data.n + 1", 3.5],
    ["1 + 1", 2],
    ["10 / 4", 2.5],
    ["data.i / 2", 1.5],
    ["size(data.list) / 2", 1.5],
    ["7 % 2", 1],
    ["data.i % 2 == 1", true],
    ["-data.i", -3],
    ["data.i == 3", true],
    ["3 == data.i", true],
    ["2.0 == 2", true],
    ["data.i != 3", false],
    ["data.i >= 3 && 2 < data.i", true],
    ["size(data.list)", 3],
    ["size(data.list) == 3", true],
    ["size(data.text) in [3]", true],
    ["3 in data.list", true],
    ["3 in data.mixed", true],
    ["data.list == [1, 2, 3]", true],
    ["data.list[0] + data.list[data.i - 1]", 4],
    ["[1, 2, 3][data.i - 2]", 2],
    ["data.text.substring(1)", "yz"],
    ["data.text.substring(0, data.i - 1)", "xy"],
    ["data.text.substring(0, size(data.text) - 1)", "xy"],
    ["data.ok ? 1 : 2.0", 1],
    ["!data.ok ? 1 : 'text'", "text"],
    ["data.ok ? size(data.list) : 0", 3],
    ["[1, size(data.list)]", [1, 3]],
    ["{'a': size(data.list), 'b': [1]}", { a: 3, b: [1] }],
    ["data.list.map(x, x * 2)", [2, 4, 6]],
    ["data.list.map(x, size(data.text))", [3, 3, 3]],
    ["data.list.filter(x, x > 1)", [2, 3]],
    ["int('12') + data.i", 15],
    ["string(data.i)", "3"],
    ["timestamp(data.date)", "2024-05-01T10:00:00.000Z"],
    ["timestamp(data.date).getHours() + 1", 11],
    ["1u", 1],
  ];
  for (const [expression, expected] of cases) {
    it(`${expression} gives ${JSON.stringify(expected)}`, () => {
      const value = evaluate(`{{ ${expression} }}`);
      assert.deepEqual(value, expected);
      assert.deepEqual(JSON.parse(JSON.stringify(value)), expected);
    });
  }
});

describe("compileTemplate", () => {
  it("compileTemplate keeps the type of a string that is one expression, and hands over the very value", () => {
    assert.equal(evaluate("{{ data }}"), SCOPE.data);
    assert.equal(evaluate("{{data.ok}}"), true);
    assert.equal(evaluate("{{ data.none }}"), null);
  });

  it("joins the results of a longer text: lists and maps as JSON, null as nothing", () => {
    assert.equal(evaluate("{{ data.i }} of {{ data.list }}{{ data.none }}, {{ data.ok }}"), "3 of [1,2,3], true");
    assert.equal(evaluate(" {{ data.i }}"), " 3");
  });

  it("evaluates every string inside lists and maps and leaves the rest as it is", () => {
    const value = { a: ["{{ data.i }}", { b: "x{{ data.text }}" }], c: 1, d: null };
    assert.deepEqual(evaluate(value), { a: [3, { b: "xxyz" }], c: 1, d: null });
  });

  it("compileTemplate gives back a value without expressions unchanged", () => {
    const value = { a: [1, "text", "} }"] };
    assert.equal(evaluate(value), value);
    assert.equal(isTemplate(value), false);
    assert.equal(isTemplate({ a: [{ b: "{{ x }}" }] }), true);
  });

  it("compileTemplate finds the end of an expression by its tokens", () => {
    assert.deepEqual(evaluate('{{ {"a": {}} }}'), { a: {} });
    assert.deepEqual(evaluate('{{ {"a": {"b": 1}}}}'), { a: { b: 1 } });
    assert.equal(evaluate("{{ '}}' + \"{{\" }}"), "}}{{");
    assert.equal(evaluate("a }} {{ '\\'}}' }}"), "a }} '}}");
    assert.equal(evaluate("{{ r'}}\\n' }}"), "}}\\n");
    assert.equal(evaluate("{{ '''}}''' }}"), "}}");
  });

  it("encodes each result of a text with the function it is given", () => {
    const compiled = compileTemplate("/x/{{ input.city }}?a={{ input.other }}", ["input"], (value) =>
      encodeURIComponent(String(value)),
    );
    assert.ok("evaluate" in compiled);
    assert.equal(compiled.evaluate({ input: { city: "a/b", other: "c&d" } }), "/x/a%2Fb?a=c%26d");
  });

  it("compileTemplate does not let a value reach beyond plain data", () => {
    assert.throws(() => evaluate("{{ data.constructor }}"), ExpressionError);
    assert.throws(() => evaluate("{{ data['__proto__'] }}"), ExpressionError);
  });
});

/** What JavaScript has, and the result of what the message says to write in its place. */
const HABITS: readonly [written: string, instead: RegExp, result: unknown][] = [
  ["data.none?.x", /write (.*)$/, null],
  ["input?.city", /write (.*)$/, "Ghent"],
  ["steps.total?.x?.y", /write (.*)$/, null],
  ["data.text?.trim()", /write (.*)$/, "xyz"],
  ["data.list?.[0]", /write (.*)$/, 1],
  ["data.absent ?? 'other'", /write (.*)$/, "other"],
  ["data.none ?? 'other'", /write (.*)$/, "other"],
  ["data.text ?? 'other'", /write (.*)$/, "xyz"],
];

describe("what compileTemplate says to write in place of JavaScript is an expression that gives what was meant", () => {
  for (const [written, instead, result] of HABITS) {
    it(written, () => {
      const { problem, offset } = problemOf(`{{ ${written} }}`);
      assert.equal(offset, 3 + written.search(/\?\.|\?\?/));
      const found = instead.exec(problem)?.[1];
      assert.equal(evaluate(`{{ ${found} }}`), result, found);
    });
  }

  it("is said of tokens only, not of what texts hold or fields are called", () => {
    const fields = { ...SCOPE, data: { is: 1, and: 2, new: 3, length: 4 } };
    assert.equal(evaluate("{{ data.is + data.and + data.new }}", fields), 6);
    assert.equal(evaluate("{{ '?? === => `' }}"), "?? === => `");
    assert.match(problemOf("{{ data.is + data.and + }}").problem, /unexpected token: the end$/);
    assert.match(problemOf("{{ '?? =>' + }}").problem, /unexpected token: the end$/);
  });

  it("is a warning with its place for .length, which may be a field of the data", () => {
    const warningsOf = (text: string) => {
      const compiled = compileTemplate(text, SCOPES.workflow);
      assert.ok("evaluate" in compiled);
      return compiled.warnings ?? [];
    };
    assert.deepEqual(
      warningsOf("a {{ 1 + data.list.length }} {{ size(data.list) }}").map(({ offset }) => offset),
      [19],
    );
    assert.match(
      warningsOf("{{ data.list.length }}")[0]!.problem,
      /write size\(data\.list\); .* data\.list\["length"\]$/,
    );
    assert.deepEqual(warningsOf('{{ data["length"] }} {{ steps.length2 }}'), []);
  });

  it("quotes the near part of a long expression in one line", () => {
    const { problem } = problemOf(`{{ ${"data.n +\n".repeat(500)} data.n === 1 }}`);
    assert.match(problem, /^\{\{ ….*data\.n === 1 \}\}: CEL has no "===": write ==$/);
    assert.ok(problem.length < 300);
  });
});

describe("what is wrong with an expression", () => {
  it("a fault of an expression is said with the expression, the path in the value and the offset in the text", () => {
    const { problem, path, offset } = problemOf({ a: ["x {{ dta.i }}"] });
    assert.equal(problem, '{{ dta.i }}: unknown name "dta", did you mean "data"?');
    assert.deepEqual(path, ["a", 0]);
    assert.equal(offset, 5);
  });

  it("a fault of an expression names what is open, empty or no CEL", () => {
    assert.equal(problemOf("a {{ data.i").problem, 'a "{{" is not closed by "}}"');
    assert.equal(problemOf("{{ }}").problem, "the expression is empty");
    assert.match(problemOf("{{ data. }}").problem, /^\{\{ data\. \}\}: expected IDENTIFIER/);
    assert.match(problemOf("{{ 'a' + 1 }}").problem, /no such overload: string \+ double/);
    assert.match(problemOf("{{ nothing(1) }}").problem, /nothing/);
  });

  it("a fault of an expression says how to write a name with a dash", () => {
    assert.equal(
      problemOf("{{ steps.add-tax.x }}").problem,
      '{{ steps.add-tax.x }}: this subtracts; for a name with "-" write steps["add-tax"]',
    );
    assert.equal(evaluate("{{ steps['add-tax'].x }}"), 1);
  });

  it("a fault of an expression is an ExpressionError at run time that names the expression and what is missing where", () => {
    const messageOf = (text: string) => {
      let message = "";
      assert.throws(
        () => evaluate(text),
        (error: unknown) => {
          assert.ok(error instanceof ExpressionError);
          message = error.message;
          return true;
        },
      );
      return message;
    };
    assert.equal(messageOf("{{ context.language }}"), '{{ context.language }}: there is no "language" in context');
    assert.equal(messageOf("a {{ data.none.x }}"), '{{ data.none.x }}: there is no "x" in data.none');
    assert.equal(messageOf("{{ user.name }}"), '{{ user.name }}: there is no "name" in user');
    assert.match(messageOf("{{ data.list[7] }}"), /index 7/);
    assert.match(messageOf("{{ data.text + 1 }}"), /no such overload/);
  });

  it("a fault of an expression does not arise where has() asks first", () => {
    const text = "{{ has(context.language) ? context.language : 'English' }}";
    assert.equal(evaluate(text), "English");
    assert.equal(evaluate(text, { ...SCOPE, context: { language: "Dutch" } }), "Dutch");
    assert.equal(evaluate("{{ has(user.name) }}"), false);
  });
});

describe("compileExpression", () => {
  it("compileExpression names the steps an expression refers to, by dot and by bracket", () => {
    const compiled = compileExpression("steps.total.x + steps['add-tax'].x", SCOPES.workflow);
    assert.ok("evaluate" in compiled);
    assert.deepEqual(compiled.steps, ["total", "add-tax"]);
    assert.equal(compiled.evaluate(SCOPE), 6);
  });
});

describe("compileCondition", () => {
  it("compileCondition takes an expression with and without braces", () => {
    for (const text of ["data.i > 2", "{{ data.i > 2 }}", "data.ok"]) {
      const compiled = compileCondition(text, SCOPES.workflow);
      assert.ok("evaluate" in compiled);
      assert.equal(compiled.evaluate(SCOPE), true);
    }
  });

  it("compileCondition refuses what can never be true or false", () => {
    for (const text of ["1 + 1", "'yes'", "a {{ data.ok }}", "size(data)"]) {
      assert.match((compileCondition(text, SCOPES.workflow) as { problem: string }).problem, /must give true or false/);
    }
  });
});

describe("data with a key called constructor", () => {
  const data = JSON.parse('{"n": 1, "constructor": 2, "deep": [{"constructor": {"a": 3}}]}') as unknown;
  for (const [source, expected] of [
    ["{{ data.n + 1 }}", 2],
    ["{{ data.constructor }}", 2],
    ["{{ data.deep[0].constructor.a }}", 3],
    ["{{ data.deep.map(d, d.constructor.a) }}", [3]],
    ["{{ has(data.x) ? 1 : 2 }}", 2],
    ["{{ data }}", data],
  ] as const) {
    it(`data with a key called constructor is data like any other: ${source}`, () => {
      assert.deepEqual(evaluate(source, { ...SCOPE, data }), expected);
    });
  }

  it("data with a key called constructor does not hide what is missing", () => {
    assert.throws(() => evaluate("{{ data.x }}", { ...SCOPE, data }), /there is no "x" in data/);
  });
});
