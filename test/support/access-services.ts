/** Services of the tests of access: one for each mode, with the custom routes of the table. */
import type { TestContext } from "node:test";
import { AUDIENCE, CONSOLE_KEY, ISSUER, keySigner, type Signer, secretSigner } from "./access-credentials.ts";
import { CUSTOM_SOCKETS } from "./access-sockets.ts";
import { CUSTOM_ROUTES, type Mode } from "./access-table.ts";
import { pluginFolder } from "./plugin-folder.ts";
import { manifestWith, startService, type TestService } from "./service.ts";
import { type Pair, publisher, rsaPair, SECRET } from "./tokens.ts";

/**
 * What provider checks tokens: `secret` is one that both sides know, `pem` a public key, `jwks` published ones. With `absent`
 * there is none, and no key of the console either.
 */
type ProviderKind = "secret" | "pem" | "jwks" | "absent";

export interface Secured {
  readonly service: TestService;
  readonly signer: Signer;
}

export interface SecuredOptions extends Mode {
  readonly provider: ProviderKind;
  /** More of `auth`. */
  readonly auth?: object;
  /** More of the provider. */
  readonly provided?: object;
  readonly transport?: "uws" | "node";
}

const nameOf = (index: number) => `custom-${index}`;

const socketName = (index: number) => `socket-${index}`;

/** Plugins that say who was let in. */
const customPlugins = (): Record<string, string> =>
  Object.fromEntries([
    ...CUSTOM_ROUTES.map(({ method, path }, index) => [
      `routes/${nameOf(index)}.mjs`,
      `export default ${JSON.stringify({ kind: "route", name: nameOf(index), method, path }).slice(0, -1)},
        handle: ({ user }) => ({ reached: ${JSON.stringify(`${method} ${path}`)}, user: user?.sub ?? null }) };`,
    ]),
    ...CUSTOM_SOCKETS.map(({ path }, index) => [
      `sockets/${socketName(index)}.mjs`,
      `export default ${JSON.stringify({ kind: "socket", name: socketName(index), path }).slice(0, -1)},
        open: (peer) => peer.send({ reached: ${JSON.stringify(`WS ${path}`)}, user: peer.user?.sub ?? null, query: peer.query }) };`,
    ]),
  ]);

interface Keys {
  readonly own: Pair;
  readonly mallory: Pair;
}

/** Making them takes longer than all the rest: once for a file. */
export const makeKeys = (): Keys => ({ own: rsaPair(), mallory: rsaPair() });

/** @param keys those of a provider with public ones */
export async function startSecured(test: TestContext, options: SecuredOptions, keys?: Keys): Promise<Secured> {
  const { mode, production, defaultPrivate, provider, auth, provided, transport } = options;
  const checks = { use: "jwt", issuer: ISSUER, audience: AUDIENCE, ...provided };
  const [signer, key] = await signerOf(provider, test, keys);
  const manifest = manifestWith(
    {},
    {
      auth: {
        mode,
        ...(provider !== "absent" && { provider: { ...checks, ...key } }),
        ...(defaultPrivate && { defaultPrivate }),
        ...auth,
      },
      memory: { default: {} },
      workflows: { flow: { steps: [{ id: "one", andThen: { set: { n: 1 } } }] } },
      routes: [
        ...CUSTOM_ROUTES.map((_, index) => nameOf(index)),
        ...CUSTOM_SOCKETS.map((_, index) => socketName(index)),
      ].map((use) => ({ use })),
      logs: { level: "error" },
      ...(transport && { server: { transport } }),
    },
  );
  const env = {
    NODE_ENV: production ? "production" : "development",
    SERVICE_CONSOLE_ACCESS_KEY: provider === "absent" ? undefined : CONSOLE_KEY,
  };
  return {
    service: await startService(test, manifest, { env, plugins: [pluginFolder(test, customPlugins())] }),
    signer,
  };
}

/** A signer, and what the provider has to know of it. */
async function signerOf(kind: ProviderKind, test: TestContext, keys?: Keys): Promise<[Signer, object]> {
  if (kind === "secret" || kind === "absent") return [secretSigner(), { secret: SECRET }];
  const { own, mallory } = keys ?? makeKeys();
  if (kind === "pem") return [keySigner(own, mallory), { secret: own.pem }];
  return [keySigner(own, mallory, "main"), { jwks: (await publisher(test, { main: own })).url }];
}
