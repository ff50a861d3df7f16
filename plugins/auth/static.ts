/**
 * An example beside service.yaml: knows users by tokens that the manifest lists. For trials and tests only: such tokens never expire.
 * service.yaml does not use it.
 */
import { defineAuth, type User } from "#plugin";

export default defineAuth({
  config: {
    type: "object",
    properties: {
      tokens: {
        type: "object",
        description: "Users by token",
        propertyNames: { minLength: 16 },
        additionalProperties: { type: "object", properties: { id: { type: "string" } }, required: ["id"] },
      },
      publicRoutes: { type: "array", items: { type: "string" }, default: [] },
    },
    required: ["tokens"],
    additionalProperties: false,
  },
  create: (config: { tokens: Record<string, User>; publicRoutes: string[] }) => {
    const users = new Map(Object.entries(config.tokens));
    return {
      type: "static",
      publicRoutes: config.publicRoutes,
      verifyToken: async (token) => users.get(token) ?? null,
    };
  },
});
