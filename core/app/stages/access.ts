/** Stages: the verifier of user tokens, and the access rules of all routes. */
import { compileAccess } from "../../auth/classes.ts";
import { accessProblems } from "../../auth/notices.ts";
import { openVerifier } from "../../auth/provider.ts";
import type { Stage } from "./stage.ts";

export const verifier: Stage<"manifest" | "registry" | "host" | "loaded", "verifier"> = async ({
  manifest,
  registry,
  host,
  loaded: { variableOf },
}) => {
  const { verifier, problems } = await openVerifier(manifest, { registry, host, variableOf });
  return { parts: { verifier }, problems };
};

export const access: Stage<"manifest" | "paths" | "verifier" | "loaded" | "options", "access"> = ({
  manifest: { auth },
  paths,
  verifier,
  loaded: { isWritten },
  options: { env },
}) => {
  const provided = verifier?.publicRoutes ?? [];
  const problems = accessProblems(auth, { routes: paths, provided, env, isWritten });
  return { parts: { access: compileAccess(auth, paths, provided) }, problems };
};
