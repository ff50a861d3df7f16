/**
 * The resolved manifest, which is what the rest of the service sees: defaults applied, durations in milliseconds and sizes in
 * bytes as numbers (the generated types say `number` for both), frozen. `name` of agents, workflows and steps is their id where
 * it was left out, and an agent's `memory` is false where there is none. A document that was not resolved is `unknown`.
 */
export type {
  AgentManifest,
  AgentMemoryOptionsManifest,
  AgentOptionsManifest,
  AgentStepManifest,
  AgentToolManifest,
  AuthManifest,
  AuthProviderManifest,
  CorsManifest,
  HistoryManifest,
  HttpToolManifest,
  LimitsManifest,
  LogsManifest,
  Manifest,
  McpClientManifest,
  McpManifest,
  McpServerManifest,
  MemoryManifest,
  ModelSettingsManifest,
  ObservabilityManifest,
  ProviderManifest,
  RetryManifest,
  RouteManifest,
  ServerManifest,
  StepList,
  StepManifest,
  ThenManifest,
  TokenExchangeManifest,
  ToolManifest,
  UpdatesManifest,
  WorkflowManifest,
} from "../../generated/types.ts";
