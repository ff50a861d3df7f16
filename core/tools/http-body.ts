/** Reads the body of a response to an HTTP tool: at most 1 MiB, parsed if it is JSON (its large integers become strings), else text; of an error only the beginning. */

import type { Readable } from "node:stream";
import { TextDecoder } from "node:util";
import { messageOf } from "../lib/errors.ts";
import { parseExactly } from "../lib/large-integers.ts";
import { withoutSecrets } from "../lib/secrets.ts";
import { readBytes } from "../outbound/body.ts";
import { decoded } from "../outbound/decompress.ts";

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
 * @param body read to the end, or left
 * @param headers names in lower case
 * @throws AnswerError when it is too large, compressed in a way that Node cannot read, or declared as JSON and invalid
 */
export async function readBody(body: Readable, headers: Record<string, string>, name: string): Promise<AnswerBody> {
  const bytes = await readBytes(
    plain(body, headers, name),
    { bytes: MAX_BODY_BYTES },
    () => new AnswerError(`${name} answered more than ${MAX_BODY_BYTES / 1_048_576} MiB`),
  );
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

function plain(body: Readable, { "content-encoding": encoding }: Record<string, string>, name: string): Readable {
  try {
    return decoded(body, encoding);
  } catch (error) {
    throw new AnswerError(`${name} answered, but ${messageOf(error)}`);
  }
}

/** The beginning of an error's body, if it is text that can be read; else an empty string. The rest is not received. */
export async function readExcerpt(body: Readable, headers: Record<string, string>): Promise<string> {
  const parts: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const chunk of decoded(body, headers["content-encoding"])) {
      parts.push(chunk);
      size += chunk.length;
      if (size > MAX_EXCERPT_BYTES) break;
    }
  } catch {
    return "";
  }
  const { type, parameters } = contentType(headers);
  if (!TEXT_TYPE.test(type)) return "";
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
