/** An example beside service.yaml: the tool `lookup_order` of service.yaml. */
import { defineTool } from "#plugin";

interface Order {
  customer: string;
  item: string;
  total: number;
  status: "packed" | "shipped" | "delivered";
  shipped?: string;
}

/** Sample data; a shop would query its database. */
const ORDERS = new Map<string, Order>([
  ["A-1001", { customer: "Ada", item: "Desk lamp", total: 49, status: "delivered", shipped: "2025-03-02" }],
  ["A-1002", { customer: "Grace", item: "Standing desk", total: 620, status: "shipped", shipped: "2025-03-11" }],
  ["A-1003", { customer: "Ada", item: "Office chair", total: 240, status: "packed" }],
]);

export default defineTool({
  description: "Looks up an order by its number, like A-1002",
  tags: ["support"],
  parameters: {
    type: "object",
    properties: { orderId: { type: "string", pattern: "^A-[0-9]{4}$", description: "Number of the order" } },
    required: ["orderId"],
    additionalProperties: false,
  },
  execute: ({ orderId }: { orderId: string }) => {
    const order = ORDERS.get(orderId);
    return order === undefined ? { found: false, orderId } : { found: true, orderId, ...order };
  },
});
