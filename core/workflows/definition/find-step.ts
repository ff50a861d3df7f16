/** Finds the step that a client names: by its path, or by an id that only one step has. */
import { invalid, quoted } from "../../lib/errors.ts";
import { suggest } from "../../manifest/issues.ts";
import type { Outline, StepOutline } from "./definition.ts";

/**
 * @param field the field of the request, for the message
 * @throws ServiceError `invalid_input` when there is no such step, or more than one
 */
export function findStepByName(outline: Outline, name: string, field: string): StepOutline {
  const exact = outline.get(name);
  if (exact !== undefined) return exact;
  const steps = [...outline.values()];
  const found = steps.filter((step) => step.id === name);
  if (found.length === 1) return found[0] as StepOutline;
  if (found.length > 1) {
    throw invalid(
      `${field}: more than one step has the id ${JSON.stringify(name)}; name one of ${found.map(({ path }) => path).join(", ")}`,
    );
  }
  const paths = steps.map(({ path }) => path);
  const near = suggest(name, paths);
  const hint = near === undefined ? `its steps are ${paths.join(", ")}` : `did you mean ${JSON.stringify(near)}?`;
  throw invalid(`${field}: there is no step ${quoted(name)}; ${hint}`);
}
