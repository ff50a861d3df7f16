/** Texts, images and files of messages, in the form that agents read. */
import { objectsIn, textAt } from "../http/decode.ts";
import { invalid, listed } from "../lib/errors.ts";
import { type Fields, isObject } from "../lib/is-object.ts";
import { unsupported } from "./errors.ts";
import { type InputPart, placed } from "./places.ts";

/** Reads a part of a message; `path` is its place in the request. */
type PartReader = (part: Fields, path: string) => InputPart;
export type PartReaders = Readonly<Record<string, PartReader>>;

/** Reads a text, or a list of parts. */
export function readContent(content: unknown, readers: PartReaders, path: string): readonly InputPart[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return objectsIn(content, path).map(([part, at]) => {
    const reader = typeof part.type === "string" && Object.hasOwn(readers, part.type) ? readers[part.type] : undefined;
    if (reader === undefined) throw invalid(`${at}.type must be one of ${listed(Object.keys(readers))}`);
    return reader(part, at);
  });
}

/** Reads content and joins it to one text. */
export const readText = (content: unknown, readers: PartReaders, path: string): string =>
  readContent(content, readers, path)
    .map(({ text }) => text as string)
    .join("\n");

/** Makes a reader of parts with a text in the field `key`. */
export const textPart =
  (key = "text"): PartReader =>
  (part, path) => ({ type: "text", text: textAt(part, key, path) });

/** Reads an image: a web address or a `data:` URL. */
export function readImage(url: unknown, path: string): InputPart {
  if (typeof url !== "string" || url === "") throw invalid(`${path} must be a data: or http(s) URL`);
  return placed({ type: "image", image: url }, path);
}

const PDF = "application/pdf";

/** Reads a file: bytes as a `data:` URL or base64 text, or a web address. Without a media type it is assumed to be a PDF. */
export function readFile(file: Fields, path: string): InputPart {
  const { file_id: id, file_data: bytes, file_url: url, filename } = file;
  if (typeof id === "string" && bytes === undefined && url === undefined)
    throw unsupported(`${path}.file_id`, "is not available: send the file itself");
  const key = typeof bytes === "string" ? "file_data" : "file_url";
  const data = textAt(file, key, path);
  const name = typeof filename === "string" ? { filename } : undefined;
  const type = /^data:/i.test(data) ? undefined : { mediaType: PDF };
  return placed({ type: "file", data, ...type, ...name }, `${path}.${key}`);
}

const AUDIO_TYPES: Readonly<Record<string, string>> = { wav: "audio/wav", mp3: "audio/mpeg" };

export function readAudio(audio: unknown, path: string): InputPart {
  if (!isObject(audio)) throw invalid(`${path} must be object`);
  const mediaType = AUDIO_TYPES[String(audio.format)];
  if (mediaType === undefined) throw invalid(`${path}.format must be one of "wav", "mp3"`);
  return placed({ type: "file", data: textAt(audio, "data", path), mediaType }, `${path}.data`);
}
