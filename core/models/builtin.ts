/** The plugins that are part of Penstock: any manifest may name them, wherever it lies. */
import type { BuiltInPlugin } from "../registry/load.ts";
import openaiCompatible from "./openai-compatible/openai-compatible.ts";
import scripted from "./scripted/scripted.ts";

export const BUILT_IN_PLUGINS: readonly BuiltInPlugin[] = [
  { kind: "provider", name: "openai-compatible", plugin: openaiCompatible },
  { kind: "provider", name: "scripted", plugin: scripted },
];
