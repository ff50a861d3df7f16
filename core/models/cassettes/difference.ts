/** Describes how a request differs from the most similar recorded one. */
import { isObject } from "../../lib/is-object.ts";
import { type Cassette, type CassetteRequest, fileName } from "./cassette.ts";

interface Difference {
  readonly place: string;
  readonly sent: unknown;
  readonly recorded: unknown;
}

const MAX_NAMED = 3;
const MAX_VALUE_LENGTH = 80;

/** @param known the cassettes of all providers */
export function describeDifference(request: CassetteRequest, known: Iterable<Cassette>): string {
  const ofProvider = [...known]
    .map((cassette) => cassette.request)
    .filter(({ provider }) => provider === request.provider);
  if (ofProvider.length === 0) return "nothing is recorded of this provider";
  const compared = ofProvider.map((recorded) => ({ recorded, differences: differencesOf("", request, recorded) }));
  const nearest = compared.reduce((best, each) => (distance(each) < distance(best) ? each : best));
  const named = nearest.differences.slice(0, MAX_NAMED).map(describe).join("; ");
  const more = nearest.differences.length - MAX_NAMED;
  return `of ${fileName(nearest.recorded)} it differs in ${named}${more > 0 ? `; and ${more} more` : ""}`;
}

/** The number of differences; another endpoint counts most. */
const distance = ({ differences }: { differences: readonly Difference[] }): number =>
  differences.length + (differences.some(({ place }) => place === "path") ? 1_000_000 : 0);

function differencesOf(place: string, sent: unknown, recorded: unknown): Difference[] {
  if (Array.isArray(sent) && Array.isArray(recorded)) {
    const length = Math.max(sent.length, recorded.length);
    return Array.from({ length }, (_, index) => index).flatMap((index) =>
      differencesOf(`${place}[${index}]`, sent[index], recorded[index]),
    );
  }
  if (isObject(sent) && isObject(recorded)) {
    const names = [...new Set([...Object.keys(sent), ...Object.keys(recorded)])];
    return names.flatMap((name) => differencesOf(place === "" ? name : `${place}.${name}`, sent[name], recorded[name]));
  }
  return sent === recorded ? [] : [{ place, sent, recorded }];
}

function describe({ place, sent, recorded }: Difference): string {
  if (recorded === undefined) return `${place}, which is not recorded: ${shown(sent, 0)}`;
  if (sent === undefined) return `${place}, which was not sent: ${shown(recorded, 0)}`;
  const from = firstDifference(String(sent), String(recorded));
  return `${place}: ${shown(sent, from)} was sent, ${shown(recorded, from)} is recorded`;
}

function firstDifference(left: string, right: string): number {
  let index = 0;
  while (index < left.length && left[index] === right[index]) index++;
  return index;
}

/** Shortens a value for a message: of a long text, the part where the difference is. */
function shown(value: unknown, from: number): string {
  if (typeof value !== "string") return cut(JSON.stringify(value) ?? String(value));
  const begin = value.length <= MAX_VALUE_LENGTH ? 0 : Math.max(0, from - 20);
  return `${begin > 0 ? "…" : ""}${cut(JSON.stringify(value.slice(begin, begin + MAX_VALUE_LENGTH + 1)))}`;
}

const cut = (text: string): string =>
  text.length > MAX_VALUE_LENGTH + 2 ? `${text.slice(0, MAX_VALUE_LENGTH)}…` : text;
