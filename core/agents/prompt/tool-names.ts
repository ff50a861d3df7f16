/** Names of tools in the form that models are given. */
import { createHash } from "node:crypto";

/** What every provider accepts: Gemini requires a letter or `_` first, OpenAI at most 64 characters and neither `.` nor `:`. */
const ACCEPTED = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/;
const REFUSED_CHARACTERS = /[^A-Za-z0-9_-]/g;
const DIGEST_LENGTH = 8;
const MAX_LENGTH = 64 - "_".length - DIGEST_LENGTH;

/**
 * The name itself if every provider accepts it, else a similar one that ends in a digest of the name. So two tools never get the same
 * name, and a tool has the same name in every process and in stored conversations.
 */
export function modelToolName(name: string): string {
  if (ACCEPTED.test(name)) return name;
  const digest = createHash("sha256").update(name).digest("hex").slice(0, DIGEST_LENGTH);
  const readable = name.replace(REFUSED_CHARACTERS, "_");
  const begun = /^[A-Za-z_]/.test(readable) ? readable : `_${readable}`;
  return `${begun.slice(0, MAX_LENGTH)}_${digest}`;
}
