/** Converts the content of AG-UI messages to parts of UI messages. */
import { filePart } from "../agents/prompt/file-data.ts";
import { objectsIn, parseJsonText, textAt } from "../http/decode.ts";
import { invalid } from "../lib/errors.ts";
import { type Fields, isObject } from "../lib/is-object.ts";

export type UiPart = Record<string, unknown>;

/** Media types by kind of file, for clients that do not name one: the first bytes then decide. */
const MEDIA_TYPES: Readonly<Record<string, string>> = {
  image: "image/*",
  audio: "audio/*",
  video: "video/*",
  document: "application/pdf",
};

/** The text of a message that may only contain text. @throws ServiceError `invalid_input` naming the field */
export function textOf(content: unknown, path: string): string {
  if (content === undefined || content === null) return "";
  if (typeof content === "string") return content;
  return objectsIn(content, path)
    .flatMap(([part, here]) => (part.type === "text" ? [textAt(part, "text", here)] : []))
    .join("\n");
}

/** The parts of a user's message. Parts that a model cannot be shown are left out. */
export function userParts(content: unknown, path: string): UiPart[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return objectsIn(content, path).flatMap(([part, here]) => userPart(part, here));
}

function userPart(part: Fields, path: string): UiPart[] {
  const { type } = part;
  if (type === "text") return [{ type, text: textAt(part, "text", path) }];
  if (typeof type !== "string" || !Object.hasOwn(MEDIA_TYPES, type)) return [];
  const { source } = part;
  if (!isObject(source)) throw invalid(`${path}.source must be object`);
  // A file with an id of one provider is not available to others.
  if (source.type !== "data" && source.type !== "url") return [];
  const value = textAt(source, "value", `${path}.source`);
  const mediaType = typeof source.mimeType === "string" ? source.mimeType : MEDIA_TYPES[type]!;
  const url = source.type === "data" ? `data:${mediaType};base64,${value}` : value;
  filePart(url, "value", mediaType, `${path}.source`);
  return [{ type: "file", mediaType, url }];
}

/** The metadata of a part for the provider, as the client sent it back. */
export function metadataIn(value: unknown): object | undefined {
  const parsed = typeof value === "string" ? parsedObject(value) : undefined;
  return isObject(parsed) && Object.values(parsed).every(isObject) ? parsed : undefined;
}

/** Parses a result that is the text of an object or a list; other text is returned unchanged. */
export const resultIn = (text: string): unknown => parsedObject(text) ?? text;

function parsedObject(text: string): object | undefined {
  if (!/^\s*[[{]/.test(text)) return undefined;
  return parseJsonText(text) as object | undefined;
}
