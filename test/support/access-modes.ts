/** The modes in which everything is asked for. */
import type { SecuredOptions } from "./access-services.ts";

export const MODES: readonly SecuredOptions[] = [
  { mode: "none", production: true, provider: "secret" },
  { mode: "authNext", production: false, provider: "secret" },
  { mode: "authNext", production: true, provider: "jwks" },
  { mode: "legacy", production: false, provider: "pem" },
  { mode: "legacy", production: true, provider: "secret" },
  { mode: "legacy", production: true, defaultPrivate: true, provider: "jwks" },
];
export const titleOf = ({ mode, production, defaultPrivate = false, provider }: SecuredOptions): string =>
  `${mode}${defaultPrivate ? ", defaultPrivate" : ""}, ${production ? "production" : "development"}, ${provider}`;
