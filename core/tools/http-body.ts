/** Reads the body of a response to an HTTP tool: at most 1 MiB, parsed if it is JSON (its large integers become strings), else text; of an error only the beginning. */

import { TextDecoder } from "node:util";
import { parseExactly } from "../lib/large-integers.ts";
import { withoutSecrets } from "../lib/secrets.ts";
import { readBytes } from "../outbound/body.ts";

/** A JSON value, or text; null for an empty JSON body. */
export type AnswerBody = unknown;

const MAX_BODY_BYTES = 1_048_576;
const MAX_EXCERPT_BYTES = 16_384;
const MAX_EXCERPT_CHARACTERS = 4096;
const TEXT_TYPE = /^(?:text\/|application\/(?:[\w.!#$&^-]+\+)?(?:json|xml)$)/i;
const JSON_TYPE = /^application\/(?:[\w.!#$&^-]+\+)?json$/i;

/** The response cannot be used. The message is for the caller of the tool. */
export class AnswerError extends Error {}

/**
 * @param chunks read to the end, or closed
 * @param headers names in lower case
 * @throws AnswerError when it is too large, compressed, or declared as JSON and invalid
 */
export async function readBody(
  chunks: AsyncIterable<Uint8Array>,
  headers: Record<string, string>,
  name: string,
): Promise<AnswerBody> {
  const encoding = headers["content-encoding"] ?? "identity";
  const isPlain = encoding === "identity";
  const problem = isPlain
    ? `${name} answered more than ${MAX_BODY_BYTES / 1_048_576} MiB`
    : `${name} answered with content-encoding ${encoding}, which was not asked for`;
  const bytes = await readBytes(chunks, { bytes: isPlain ? MAX_BODY_BYTES : 0 }, () => new AnswerError(problem));
  const { type, parameters } = contentType(headers);
  const text = decoder(parameters).decode(bytes);
  if (!JSON_TYPE.test(type)) return text;
  if (text === "") return null;
  try {
    return parseExactly(text);
  } catch (error) {
    throw new AnswerError(`${name} answered with broken JSON`, { cause: error });
  }
}

/** The beginning of an error's body, if it is text; else an empty string. The rest is not received. */
export async function readExcerpt(chunks: AsyncIterable<Uint8Array>, headers: Record<string, string>): Promise<string> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of chunks) {
    parts.push(chunk);
    size += chunk.length;
    if (size > MAX_EXCERPT_BYTES) break;
  }
  const { type, parameters } = contentType(headers);
  if ((headers["content-encoding"] ?? "identity") !== "identity" || !TEXT_TYPE.test(type)) return "";
  // Before it is cut: a part of a secret would not be found any more.
  const text = withoutSecrets(decoder(parameters).decode(Buffer.concat(parts)).trim());
  return text.length > MAX_EXCERPT_CHARACTERS ? `${text.slice(0, MAX_EXCERPT_CHARACTERS)}… (cut)` : text;
}

function contentType(headers: Record<string, string>) {
  const [type = "", ...parameters] = (headers["content-type"] ?? "").split(";").map((part) => part.trim());
  return { type, parameters };
}

/** A decoder for UTF-8, unless the content type names another charset that Node knows. */
function decoder(parameters: readonly string[]): TextDecoder {
  const charset = parameters
    .find((parameter) => /^charset=/i.test(parameter))
    ?.slice("charset=".length)
    .replaceAll('"', "");
  try {
    return new TextDecoder(charset);
  } catch {
    return new TextDecoder();
  }
}
