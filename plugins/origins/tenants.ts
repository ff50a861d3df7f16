import { defineOrigin } from "#plugin";

/** Every tenant has a subdomain. */
export default defineOrigin({
  origin: (origin) => (origin.startsWith("https://") && origin.endsWith(".example.com") ? origin : undefined),
});
