/** HTML as tagged templates in which every value is escaped, so that forgetting it is not possible. */

const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

const escapeHtml = (text: string) => text.replace(/[&<>"']/g, (character) => ENTITIES[character]!);

/** Markup that is safe to stand in a page as it is. Only `html` and `trusted` make it. */
export class Html {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** For constants of ours: never for anything that a manifest, a plugin or a client wrote. */
export const trusted = (text: string) => new Html(text);

type Value = string | number | Html | readonly Html[] | null;

/** Strings and numbers are escaped, `Html` stands as it is, lists are joined, null is nothing. */
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
