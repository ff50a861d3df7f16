/** Names of tools as models are told them. */
import { createHash } from "node:crypto";

/** What every provider accepts: Gemini wants a letter or `_` first, OpenAI at most 64 characters and neither `.` nor `:`. */
const ACCEPTED = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/;
const REFUSED_CHARACTERS = /[^A-Za-z0-9_-]/g;
const DIGEST_LENGTH = 8;
const MAX_LENGTH = 64 - "_".length - DIGEST_LENGTH;

/**
 * The name itself if every provider accepts it, else one that is like it. It ends in a digest of the name, so that two tools
 * are never called by one name, and a tool is called the same in every process and in stored conversations.
 */
export function modelToolName(name: string): string {
  if (ACCEPTED.test(name)) return name;
  const digest = createHash("sha256").update(name).digest("hex").slice(0, DIGEST_LENGTH);
  const readable = name.replace(REFUSED_CHARACTERS, "_");
  const begun = /^[A-Za-z_]/.test(readable) ? readable : `_${readable}`;
  return `${begun.slice(0, MAX_LENGTH)}_${digest}`;
}
