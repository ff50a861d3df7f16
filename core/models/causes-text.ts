const MAX_DEPTH = 8;

/** The messages of an error, of the errors that it wraps and of its causes, one per line. */
export function causesText(error: unknown, depth = 0): string {
  if (typeof error === "string") return error;
  if (typeof error !== "object" || error === null || depth === MAX_DEPTH) return "";
  const { message, error: inner, cause } = error as { message?: unknown; error?: unknown; cause?: unknown };
  const own = typeof message === "string" ? message : "";
  return [own, causesText(inner, depth + 1), causesText(cause, depth + 1)].filter(Boolean).join("\n");
}
