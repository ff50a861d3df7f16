/** Recognises files by their first bytes. */

/** Bytes, or characters of base64, that are long enough for every signature. */
const HEAD_LENGTH = 64;

/** Signatures in hexadecimal, with their media types. */
const SIGNATURES: readonly (readonly [RegExp, string])[] = [
  [/^89504e470d0a1a0a/, "image/png"],
  [/^ffd8ff/, "image/jpeg"],
  [/^47494638(37|39)61/, "image/gif"],
  [/^52494646.{8}57454250/, "image/webp"],
  [/^424d.{8}00000000/, "image/bmp"],
  [/^(49492a00|4d4d002a)/, "image/tiff"],
  [/^.{8}66747970(61766966|61766973)/, "image/avif"],
  [/^.{8}66747970(68656963|68656978)/, "image/heic"],
  [/^255044462d/, "application/pdf"],
  [/^52494646.{8}57415645/, "audio/wav"],
  [/^(494433|fff[23b])/, "audio/mpeg"],
  [/^4f676753/, "audio/ogg"],
  [/^664c6143/, "audio/flac"],
  [/^.{8}66747970(69736f6d|6d703431|6d703432|61766331)/, "video/mp4"],
  [/^1a45dfa3/, "video/webm"],
];

/** Names that are in use, and the registered ones, which providers take. */
const ALIASES: ReadonlyMap<string, string> = new Map([
  ["image/jpg", "image/jpeg"],
  ["image/pjpeg", "image/jpeg"],
  ["image/x-png", "image/png"],
  ["application/x-pdf", "application/pdf"],
  ["audio/mp3", "audio/mpeg"],
  ["audio/wave", "audio/wav"],
  ["audio/x-wav", "audio/wav"],
]);

/** Types whose first bytes leave no doubt, as those of containers (MP4, Ogg) do; and the names that they correct. */
const CERTAIN = /^image\/|^application\/pdf$/;
const CORRECTED = /^(?:image\/(?!svg)|audio\/|video\/|application\/)/;

/**
 * The media type of a file: the name that it came with, in the form that providers take. The first bytes make one with a wildcard
 * (`image/*`) exact, and correct a wrong one.
 */
export function mediaTypeOf(data: string | Uint8Array | URL, given: string | undefined): string | undefined {
  const seen = sniffMediaType(data);
  if (given === undefined) return seen;
  const type = given.split(";", 1)[0]!.trim().toLowerCase();
  const named = ALIASES.get(type) ?? type;
  if (seen === undefined) return named;
  const isWrong = CERTAIN.test(seen) && CORRECTED.test(named);
  return isWrong || named.includes("*") || named === "application/octet-stream" ? seen : named;
}

/** @param data bytes, or base64 text. The media type of an address is unknown */
function sniffMediaType(data: string | Uint8Array | URL): string | undefined {
  if (data instanceof URL) return undefined;
  const bytes = data.slice(0, HEAD_LENGTH);
  const head = Buffer.from(bytes as string, "base64").toString("hex");
  return SIGNATURES.find(([signature]) => signature.test(head))?.[1];
}
