/** What `penstock client` makes of JSON Schemas, of ids, and of workflows that resume in several ways. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { clientText } from "../../core/typed-client/client-file.ts";
import { loadGenerator } from "../../core/typed-client/generator.ts";
import { type ClientNames, workflowSchemas } from "../../core/typed-client/names.ts";
import type { WorkflowDetail, WorkflowStep } from "../../generated/types.ts";
import { ROOT } from "../support/command-line.ts";

const NOTHING: ClientNames = { agents: [], tools: new Map(), toolPrefixes: [], workflows: new Map() };
const DOCUMENT = {
  openapi: "3.1.0",
  info: { title: "T", version: "1" },
  paths: {},
  components: { schemas: {}, responses: {} },
};
const generator = loadGenerator([ROOT]);

const textFor = (names: Partial<ClientNames>) => clientText(DOCUMENT, { ...NOTHING, ...names }, generator);

/** The types of all components, comments and spaces left out. */
async function typesFor(tools: Record<string, object>): Promise<string> {
  const text = await textFor({ tools: new Map(Object.entries(tools)) as ClientNames["tools"] });
  const [, schemas = ""] = /^export interface components \{\n {4}schemas: \{\n(.*?)^ {4}\};/ms.exec(text) ?? [];
  return schemas
    .replace(/\/\*\*.*?\*\//gs, "")
    .replace(/\s+/g, " ")
    .trim();
}

const ROWS: [title: string, schema: object, type: string][] = [
  ["an object without properties", { type: "object" }, "Record<string, unknown>"],
  ["no object at all", {}, "unknown"],
  ["a default, which may be left out", { properties: { a: { type: "integer", default: 1 } } }, "{ a?: number; }"],
  [
    "a constant of any kind",
    { properties: { a: { const: null }, b: { const: "x" }, c: { const: { d: 1 } } } },
    '{ a?: null; b?: "x"; c?: unknown; }',
  ],
  ["some values", { properties: { a: { type: "string", enum: ["x", "y"] } } }, '{ a?: "x" | "y"; }'],
  ["several types", { properties: { a: { type: ["string", "null"] } } }, "{ a?: string | null; }"],
  [
    "places of draft 7",
    { properties: { a: { type: "array", items: [{ type: "string" }, { type: "number" }] } } },
    "{ a?: [ string, number ]; }",
  ],
  [
    "true and false in place of schemas",
    { properties: { a: true, b: { type: "array", items: true } } },
    "{ a?: unknown; b?: unknown[]; }",
  ],
  [
    "keywords that validators alone read",
    {
      properties: { a: { type: "string", format: "binary", pattern: "^a", "x-own": 1 } },
      if: { required: ["a"] },
      $id: "https://a.example/s",
    },
    "{ a?: string; }",
  ],
  [
    "other properties of another type, beside which named ones keep theirs",
    { properties: { a: { type: "number" } }, additionalProperties: { type: "string" } },
    "{ a?: number; } & { [key: string]: unknown; }",
  ],
  [
    "properties by pattern beside named ones",
    { properties: { a: { type: "number" } }, patternProperties: { "^x-": { type: "string" } } },
    "{ a?: number; } & { [key: string]: unknown; }",
  ],
  [
    "a reference that leads elsewhere",
    { properties: { a: { $ref: "https://a.example/s" }, b: { $ref: "#/properties/a" } } },
    "{ a?: unknown; b?: unknown; }",
  ],
  [
    "a property that is called as a keyword is",
    { properties: { $ref: { type: "string" }, enum: { type: "number" } } },
    "{ $ref?: string; enum?: number; }",
  ],
];

for (const [title, schema, type] of ROWS) {
  test(`penstock client: the input of a tool whose schema has ${title}`, async () => {
    assert.equal(await typesFor({ t: schema }), `"tool.t.input": ${type};`);
  });
}

test("penstock client: a tool's schema may refer to its definitions and to itself, by escaped names too", async () => {
  const schema = {
    properties: { child: { $ref: "#" }, first: { $ref: "#/$defs/a~1b" }, second: { $ref: "#/definitions/c%20d" } },
    $defs: { "a/b": { type: "string" } },
    definitions: { "c d": { properties: { again: { $ref: "#/$defs/a~1b" } } } },
  };
  const component = (name: string) => `components["schemas"]["${name}"]`;
  assert.equal(
    await typesFor({ t: schema }),
    [
      `"tool.t.input": { child?: ${component("tool.t.input")}; first?: ${component("tool.t.input.1")}; second?: ${component("tool.t.input.2")}; };`,
      '"tool.t.input.1": string;',
      `"tool.t.input.2": { again?: ${component("tool.t.input.1")}; };`,
    ].join(" "),
  );
});

test("penstock client: two tools whose names differ in a colon alone keep inputs of their own", async () => {
  const input = (name: string) => ({ properties: { [name]: { type: "string" } } });
  const text = await textFor({
    tools: new Map([
      ["a:b", input("x")],
      ["a_b", input("y")],
    ]),
  });
  assert.match(text, /^ {2}"a:b": \{ input: components\["schemas"\]\["tool\.a_b\.input"\] \};$/m);
  assert.match(text, /^ {2}"a_b": \{ input: components\["schemas"\]\["tool\.a_b\.input_"\] \};$/m);
});

test("penstock client: ids of agents are literals in the paths of the service, and any text in those of a plugin", async () => {
  const operation = (operationId: string) => ({
    operationId,
    parameters: [{ name: "id", in: "path", required: true, schema: { type: "string" } }],
    responses: { 200: { description: "", content: { "application/json": { schema: { type: "object" } } } } },
  });
  const page = {
    operationId: "docs.x",
    responses: { 200: { description: "", content: { "text/html": { schema: {} } } } },
  };
  const paths = {
    "/agents/{id}": { get: operation("agents.get") },
    "/agents/{id}/badge": { get: operation("custom.badge") },
    "/page": { get: page },
  };
  const text = await clientText({ ...DOCUMENT, paths }, { ...NOTHING, agents: ["support", "writer"] }, generator);
  const idOf = (name: string) => new RegExp(`"${name}": \\{.*?path: \\{\\s*id: (.*?);`, "s").exec(text)?.[1];
  assert.deepEqual([idOf("agents.get"), idOf("custom.badge")], ['"support" | "writer"', "string"]);
  assert.ok(!text.includes("/page"));
});

const detail = (id: string, resumeSchema: object | null, steps: Partial<WorkflowStep>[] = []) =>
  ({ id, inputSchema: null, resultSchema: null, resumeSchema, steps }) as unknown as WorkflowDetail;

test("penstock client: a resume takes what the workflow, its steps and its sub-workflows take, and anything where one of them does", () => {
  const [own, step, below] = [{ const: "own" }, { const: "step" }, { const: "below" }];
  const find = (id: string) => ({ below: detail("below", below), any: detail("any", null), round })[id];
  const round: WorkflowDetail = detail("round", own, [{ workflow: "round" }]);
  const resumeOf = (workflow: WorkflowDetail) => workflowSchemas(workflow, find).resume;
  assert.deepEqual(resumeOf(detail("a", own)), own);
  const inner: WorkflowStep = { id: "i", name: "i", type: "andThen", purpose: "", resumeSchema: step };
  assert.deepEqual(resumeOf(detail("a", own, [{ steps: [inner] }])), { anyOf: [own, step] });
  assert.deepEqual(resumeOf(detail("a", own, [{ workflow: "below" }, { workflow: "below" }])), { anyOf: [own, below] });
  assert.deepEqual(resumeOf(round), own);
  assert.equal(resumeOf(detail("a", own, [{ workflow: "any" }])), null);
  assert.equal(resumeOf(detail("a", null, [{ resumeSchema: step }])), null);
});
