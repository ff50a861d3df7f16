/** The access class of each group of routes (contract, "Default access by group"). */
import type { Group } from "../http/route.ts";

export type AccessClass = "public" | "user" | "console";

/** Modes that this version serves; the manifest check refuses the others at boot. */
export type AuthMode = "none";

/** Without authentication every route is public (contract, "Response conventions", 4). */
const CLASSES: Record<AuthMode, (group: Group) => AccessClass> = {
  none: () => "public",
};

export function accessOf(mode: AuthMode, group: Group): AccessClass {
  return CLASSES[mode](group);
}
