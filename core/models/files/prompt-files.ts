/** Files that a prompt names by URL: they are loaded for models that cannot load the URL themselves, and checked for others. */
import type { LanguageModelV3FilePart, LanguageModelV3Message, LanguageModelV3Prompt } from "@ai-sdk/provider";
import { invalid, messageOf } from "../../lib/errors.ts";
import type { AllowedAddresses } from "../../outbound/allowed-addresses.ts";
import type { DownloadedFile, Downloader } from "./download.ts";
import { mediaTypeOf } from "./media-types.ts";

type SupportedUrls = Record<string, RegExp[]>;
type UserMessage = Extract<LanguageModelV3Message, { role: "user" }>;
type Place = { readonly message: number; readonly part: number; readonly file: LanguageModelV3FilePart };

interface FileLimits {
  /** Most bytes of all files of one call together. */
  readonly max: number;
  /** Milliseconds for loading all of them. */
  readonly timeout: number;
}

/** Most files of one call; they are loaded in parallel. */
const MAX_FILES = 32;

/** Whether the prompt contains a file as a URL, for any model. */
export const hasFileUrls = (prompt: LanguageModelV3Prompt): boolean =>
  prompt.some(({ role, content }) => role === "user" && content.some((part) => urlOf(part) !== null));

function urlOf(part: { type: string; data?: unknown }): URL | null {
  const { type, data } = part;
  if (type !== "file") return null;
  if (data instanceof URL) return /^https?:$/.test(data.protocol) ? data : null;
  return typeof data === "string" && /^https?:\/\//i.test(data) && URL.canParse(data) ? new URL(data) : null;
}

function isSupported(url: URL, mediaType: string, supported: SupportedUrls): boolean {
  const type = mediaType.toLowerCase();
  return Object.entries(supported).some(([pattern, urls]) => {
    const prefix = pattern === "*" || pattern === "*/*" ? "" : pattern.toLowerCase().replace("*", "");
    return type.startsWith(prefix) && urls.some((expression) => expression.test(url.href));
  });
}

export type PromptFiles = ReturnType<typeof createPromptFiles>;

/**
 * @param downloader called when the first file has to be loaded
 * @param allowed where a URL may lead that a provider is given
 */
export function createPromptFiles(
  downloader: () => Promise<Downloader>,
  limits: FileLimits,
  allowed: AllowedAddresses,
) {
  /** Downloads by part of a message. The parts stay the same from step to step of a run, so none is loaded twice, even if it failed. */
  const downloads = new WeakMap<LanguageModelV3FilePart, Promise<DownloadedFile>>();

  /**
   * The prompt with the files that the model cannot load itself. An earlier file that is no longer available becomes a note:
   * it must not make the conversation unusable.
   *
   * @throws ServiceError `invalid_input` when a file of the last message cannot be loaded, or is at a private address
   */
  async function load(
    given: LanguageModelV3Prompt,
    supported: SupportedUrls,
    signal: AbortSignal | undefined,
  ): Promise<LanguageModelV3Prompt> {
    const all = given.flatMap(({ role, content }, message) =>
      (role === "user" ? content : []).flatMap((file, part) =>
        file.type === "file" && urlOf(file) !== null ? [{ message, part, file }] : [],
      ),
    );
    const isTaken = ({ file }: Place) => isSupported(urlOf(file)!, file.mediaType, supported);
    const loaded = all.filter((place) => !isTaken(place));
    const spoken = given.findLastIndex(({ role }) => role === "user");
    const isNew = ({ message }: Place) => message === spoken;
    if (loaded.filter(isNew).length > MAX_FILES)
      throw invalid(`the last message has more than ${MAX_FILES} files by URL to download`);
    const budget = { bytes: limits.max };
    const refused = new AbortController();
    const ends = [AbortSignal.timeout(limits.timeout), refused.signal];
    const until = AbortSignal.any(signal === undefined ? ends : [...ends, signal]);
    const parts = new Map<LanguageModelV3FilePart, UserMessage["content"][number]>();
    const kept = new Set(loaded.slice(-MAX_FILES));
    const known = new Map<string, Promise<boolean>>();

    const settle = async (place: Place): Promise<void> => {
      const { file, part } = place;
      try {
        if (isTaken(place)) await requirePublic(urlOf(file)!, known);
        else if (kept.has(place)) parts.set(file, await fill(file, budget, until));
        else throw new Error("the conversation has too many files");
      } catch (thrown) {
        if (!isNew(place))
          return void parts.set(file, { type: "text", text: `[A file was here: ${failureOf(file, thrown)}]` } as const);
        // The downloads of the other files are useless then.
        refused.abort();
        signal?.throwIfAborted();
        throw invalid(`part ${part + 1} of the last message: ${failureOf(file, thrown)}`, { cause: thrown });
      }
    };
    await Promise.all(all.filter(isNew).map(settle));
    await Promise.all(all.filter((place) => !isNew(place)).map(settle));
    signal?.throwIfAborted();
    if (parts.size === 0) return given;
    return given.map((message) =>
      message.role === "user"
        ? { ...message, content: message.content.map((part) => parts.get(part as LanguageModelV3FilePart) ?? part) }
        : message,
    );
  }

  /** The provider calls from a network of its own, which may be this one. @param known what was found of the hosts so far */
  async function requirePublic({ hostname }: URL, known: Map<string, Promise<boolean>>): Promise<void> {
    const found = known.get(hostname) ?? allowed.leadsOut(hostname);
    known.set(hostname, found);
    if (!(await found)) throw new Error(`${hostname} is at a private address`);
  }

  async function fill(
    file: LanguageModelV3FilePart,
    budget: { bytes: number },
    signal: AbortSignal,
  ): Promise<LanguageModelV3FilePart> {
    let loaded = downloads.get(file);
    if (loaded === undefined) {
      loaded = downloader().then(({ download }) => download(urlOf(file)!, budget, signal));
      downloads.set(file, loaded);
    }
    const { data, mediaType } = await loaded;
    return { ...file, data, mediaType: mediaTypeOf(data, preciseType(file.mediaType, mediaType))! };
  }

  return { load };
}

/** The media type: the server's, if the client was not specific, as with `image/*`. */
function preciseType(asked: string, served: string | undefined): string {
  if (served === undefined || !(asked.includes("*") || asked === "application/octet-stream")) return asked;
  return served.startsWith(asked.split("*")[0]!) || asked === "application/octet-stream" ? served : asked;
}

function failureOf(file: LanguageModelV3FilePart, thrown: unknown): string {
  const url = String(urlOf(file)).slice(0, 200);
  const late = (thrown as { name?: unknown } | null)?.name === "TimeoutError";
  return `${url} cannot be downloaded: ${late ? "it takes longer than server.downloads.timeout" : messageOf(thrown)}`;
}
