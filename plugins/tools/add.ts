/** An example beside service.yaml: a tool without imports. service.yaml does not use it. */
export default {
  kind: "tool",
  name: "add",
  description: "Adds two numbers",
  tags: ["math"],
  readOnly: true,
  parameters: {
    type: "object",
    properties: { a: { type: "number" }, b: { type: "number" } },
    required: ["a", "b"],
    additionalProperties: false,
  },
  execute: (input: { a: number; b: number }) => ({ sum: input.a + input.b }),
};
