/** The plugins that are part of Penstock: every manifest may use them. */
import type { BuiltInPlugin } from "../registry/load.ts";
import openaiCompatible from "./openai-compatible/openai-compatible.ts";
import scripted from "./scripted/scripted.ts";

export const BUILT_IN_PLUGINS: readonly BuiltInPlugin[] = [
  { kind: "provider", name: "openai-compatible", plugin: openaiCompatible },
  { kind: "provider", name: "scripted", plugin: scripted },
];
