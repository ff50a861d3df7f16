/** An example beside service.yaml: the tool `refund` of service.yaml, where a workflow asks a person before it moves money. */
import { defineTool } from "#plugin";

interface Refund {
  orderId: string;
  amount: number;
  reason?: string;
}

/** The idempotency key of the call is the id of the refund, so that a repeated call is the same refund. */
export default defineTool({
  description: "Refunds an order, in whole or in part",
  tags: ["support", "money"],
  parameters: {
    type: "object",
    properties: {
      orderId: { type: "string", pattern: "^A-[0-9]{4}$" },
      amount: { type: "number", exclusiveMinimum: 0 },
      reason: { type: "string", maxLength: 200 },
    },
    required: ["orderId", "amount"],
    additionalProperties: false,
  },
  config: {
    type: "object",
    properties: { currency: { type: "string", default: "EUR" }, limit: { type: "number", default: 500 } },
    additionalProperties: false,
  },
  execute: ({ orderId, amount, reason }: Refund, call) => {
    const { currency, limit } = call.config;
    if (amount > limit) throw new Error(`a refund is at most ${limit} ${currency}`);
    call.logger.info({ orderId, amount, currency }, "refund");
    return {
      refundId: `R-${call.idempotencyKey ?? call.requestId}`,
      orderId,
      amount,
      currency,
      reason: reason ?? null,
    };
  },
});
