/**
 * The resolved manifest, as the rest of the service sees it: defaults applied, durations in milliseconds and sizes in
 * bytes as numbers (the generated types have `number` for both), frozen. `name` of agents, workflows and steps defaults to their
 * id, and an agent's `memory` is false when it has none. A document that is not resolved has the type `unknown`.
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
