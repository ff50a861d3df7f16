/** Images and files in messages: reads `data:` URLs, web addresses and base64 text into the form that models accept. */
import type { LanguageModelV3FilePart } from "@ai-sdk/provider";
import { invalid } from "../../lib/errors.ts";
import { mediaTypeOf } from "../../models/files/media-types.ts";

const DATA_URL = /^data:([^;,]*)((?:;[^;,]*)*),/i;
const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/;

/**
 * Creates a file part.
 *
 * @param source a `data:` or http(s) URL; with `allowBase64` bare base64 text too
 * @param mediaType IANA type. Default: that of the `data:` URL, else the one recognised by the first bytes, else `fallbackType`;
 without any of them it is an error.
 * @param path where the part is in the request, for messages (`input[0].parts[1]`)
 */
export function filePart(
  source: unknown,
  field: string,
  mediaType: unknown,
  path: string,
  options: { filename?: unknown; fallbackType?: string; allowBase64?: boolean } = {},
): LanguageModelV3FilePart {
  if (typeof source !== "string" || source === "") throw invalid(`${path}.${field} must be a non-empty string`);
  if (mediaType !== undefined && typeof mediaType !== "string") throw invalid(`${path}.mediaType must be string`);
  const { data, type } = parseSource(source, `${path}.${field}`, options.allowBase64 === true);
  const media = mediaTypeOf(data, mediaType || type || options.fallbackType);
  if (!media) throw invalid(`${path}.mediaType is required`);
  const part: LanguageModelV3FilePart = { type: "file", data, mediaType: media };
  if (typeof options.filename === "string") part.filename = options.filename;
  return part;
}

function parseSource(source: string, path: string, allowBase64: boolean): { data: string | URL; type?: string } {
  if (/^data:/i.test(source)) return parseDataUrl(source, path);
  if (/^https?:\/\//i.test(source)) {
    if (!URL.canParse(source)) throw invalid(`${path} is not a valid URL`);
    return { data: new URL(source) };
  }
  if (allowBase64 && BASE64.test(source)) return { data: source };
  throw invalid(`${path} must be a data: or http(s) URL${allowBase64 ? " or base64 text" : ""}`);
}

function parseDataUrl(source: string, path: string): { data: string; type?: string } {
  const head = DATA_URL.exec(source.slice(0, 1024));
  if (head === null) throw invalid(`${path} is not a valid data: URL`);
  const body = source.slice(head[0].length);
  const type = head[1] || undefined;
  if (/;base64$/i.test(head[2]!)) {
    if (!BASE64.test(body)) throw invalid(`${path} is not valid base64`);
    return type === undefined ? { data: body } : { data: body, type };
  }
  return { data: Buffer.from(decodeText(body, path), "utf8").toString("base64"), type: type ?? "text/plain" };
}

function decodeText(body: string, path: string): string {
  try {
    return decodeURIComponent(body);
  } catch {
    throw invalid(`${path} is not a valid data: URL`);
  }
}
