/** An example beside service.yaml: a step without imports. service.yaml does not use it. */
export default {
  kind: "step",
  name: "add-tax",
  description: "Adds tax to data.amount as data.total",
  readOnly: true,
  config: {
    type: "object",
    properties: { rate: { type: "number", minimum: 0, maximum: 1, default: 0.2 } },
    additionalProperties: false,
  },
  execute: ({ data, config }: { data: { amount: number }; config: { rate: number } }) => ({
    ...data,
    total: data.amount * (1 + config.rate),
  }),
};
