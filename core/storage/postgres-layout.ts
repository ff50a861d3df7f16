/** A process that runs on finds out that a newer release has upgraded the database. */
import { LAYOUT_VERSION } from "./layout.ts";

/** Its message is for clients. */
export class LayoutError extends Error {}

/** @param found the row `schema` as it is stored */
export const checkLayout = (found: unknown): LayoutError | null =>
  found === String(LAYOUT_VERSION)
    ? null
    : new LayoutError(`a newer version has upgraded the database (schema ${found}; this one knows ${LAYOUT_VERSION})`);
