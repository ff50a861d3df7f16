/** HTML as tagged templates that escape every value, so that escaping cannot be forgotten. */

const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

const escapeHtml = (text: string) => text.replace(/[&<>"']/g, (character) => ENTITIES[character]!);

/** Markup that needs no escaping. Only `html` and `trusted` create it. */
export class Html {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** Marks constants of ours as markup: never use it for anything that a manifest, a plugin or a client wrote. */
export const trusted = (text: string) => new Html(text);

type Value = string | number | Html | readonly Html[] | null;

/** Escapes strings and numbers, inserts `Html` unchanged, joins lists, and inserts nothing for null. */
export function html(pieces: TemplateStringsArray, ...values: Value[]): Html {
  let text = pieces[0]!;
  for (let index = 0; index < values.length; index++) text += markup(values[index]!) + pieces[index + 1]!;
  return new Html(text);
}

function markup(value: Value): string {
  if (value === null) return "";
  if (value instanceof Html) return value.text;
  if (typeof value === "object") return value.map((item) => item.text).join("");
  return escapeHtml(String(value));
}
