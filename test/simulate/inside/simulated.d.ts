import type { SimulatedProcess } from "../process.ts";

declare global {
  /** The process that the code is part of: a parameter of the function that build.ts makes of the service. */
  const simulated: SimulatedProcess;
}
