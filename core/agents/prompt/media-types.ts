/** Recognises files by their first bytes. */

/** Characters of base64 that are long enough for every signature. */
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

/** @param data base64 text or bytes. The media type of an address is unknown */
export function sniffMediaType(data: string | URL | Uint8Array): string | undefined {
  if (typeof data !== "string") return undefined;
  const head = Buffer.from(data.slice(0, HEAD_LENGTH), "base64").toString("hex");
  return SIGNATURES.find(([signature]) => signature.test(head))?.[1];
}
