/**
 * Templates contain what similar spans have in common, so that a segment stores it only once: name, entity, names of attributes, and the
 * values of the first such span. The other spans list only their differences, which are few, because most runs of an agent are alike.
 */
import type { SpanData } from "../observability/sink.ts";
import type { Attributes, AttributeValue, Entity, SpanKind } from "../observability/span.ts";
import { latin1Json, sameValue, valueText } from "./text.ts";

export interface SpanTemplate {
  /** Index in the segment's list of templates. */
  readonly index: number;
  readonly name: string;
  readonly kind: SpanKind;
  readonly entity: Entity;
  readonly keys: readonly string[];
  /** Undefined if the span has the key without a value. */
  readonly values: readonly (AttributeValue | undefined)[];
}

/** How many of the newest templates of a name are tried: spans of one name have a few sets of attributes, not hundreds. */
const MAX_TRIED_TEMPLATES = 4;
const NO_ATTRIBUTES: Attributes = {};

/** Stands for the text that the first span of the line has in this attribute, so that it is stored once. No attribute is an object. */
const AS_FIRST: AttributeValue = {} as string[];

const besideFirst = (value: AttributeValue | undefined, first: AttributeValue | undefined) =>
  typeof value === "string" && value === first ? AS_FIRST : value;

/** The template of a span, and how the span differs from it. */
interface TemplateMatch {
  template: SpanTemplate;
  /** JSON: alternating index and value of each attribute that differs; empty when none differs. */
  differences: string;
}

export class Templates {
  readonly all: SpanTemplate[] = [];
  readonly #byName = new Map<string, SpanTemplate[]>();
  /** One object for all results, so that recording a span allocates none: callers use a match before they ask for the next one. */
  readonly #match: TemplateMatch = { template: undefined as unknown as SpanTemplate, differences: "" };

  /**
   * Finds the template of a span, or creates one. The result is valid only until the next call.
   *
   * @param first attributes of the first span of the line; null for that one
   */
  match(span: SpanData, first: Attributes | null): TemplateMatch {
    const match = this.#match;
    const known = this.#byName.get(span.name);
    if (known !== undefined) {
      const oldest = Math.max(0, known.length - MAX_TRIED_TEMPLATES);
      for (let index = known.length - 1; index >= oldest; index--) {
        const template = known[index]!;
        const differences = differencesFrom(template, span, first);
        if (differences === null) continue;
        match.template = template;
        match.differences = differences;
        return match;
      }
    }
    const { name, kind, entity } = span;
    const given = span.attributes ?? NO_ATTRIBUTES;
    const keys = Object.keys(given);
    const values: (AttributeValue | undefined)[] = [];
    for (const key of keys) values.push(besideFirst(given[key], first?.[key]));
    match.template = { index: this.all.length, name, kind, entity, keys, values };
    this.all.push(match.template);
    if (known === undefined) this.#byName.set(name, [match.template]);
    else known.push(match.template);
    match.differences = "";
    return match;
  }

  clear(): void {
    this.all.length = 0;
    this.#byName.clear();
  }
}

/** The differences as JSON; null when the span does not match the template. */
function differencesFrom(
  { kind, entity, keys, values }: SpanTemplate,
  span: SpanData,
  first: Attributes | null,
): string | null {
  if (span.kind !== kind || !sameEntity(span.entity, entity)) return null;
  const attributes = span.attributes ?? NO_ATTRIBUTES;
  let text = "";
  let index = 0;
  for (const key in attributes) {
    if (key !== keys[index]) return null;
    const value = besideFirst(attributes[key], first?.[key]);
    if (value !== values[index] && !sameValue(value, values[index])) {
      text += `${text === "" ? "" : ","}${index},${valueText(value)}`;
    }
    index++;
  }
  return index === keys.length ? text : null;
}

const sameEntity = (one: Entity, other: Entity): boolean =>
  one === other || (one.id === other.id && one.type === other.type && one.name === other.name);

/** The template as JSON: `[name, kind, type, id, entity's name, keys, values]`. */
export function templateText({ name, kind, entity, keys, values }: SpanTemplate): string {
  const { type, id, name: called } = entity;
  const head = `${latin1Json(name)},${kind},${latin1Json(type)},${latin1Json(id)},${latin1Json(called)}`;
  return `[${head},[${keys.map(latin1Json).join(",")}],[${values.map(valueText).join(",")}]]`;
}

type Written = [string, SpanKind, Entity["type"], string, string, string[], (AttributeValue | null)[]];

export function readTemplate(written: unknown, index: number): SpanTemplate {
  const [name, kind, type, id, called, keys, values] = written as Written;
  const had = values.map((value) => value ?? undefined);
  return { index, name, kind, entity: { type, id, name: called }, keys, values: had };
}

/** The attributes of a span from those of its template, `TemplateMatch.differences`, and those of the first span of the line. */
export function attributesFrom(
  { keys, values }: SpanTemplate,
  differences: readonly unknown[],
  first: Attributes,
): Attributes {
  const own = [...values];
  for (let at = 0; at + 1 < differences.length; at += 2) {
    own[differences[at] as number] = (differences[at + 1] as AttributeValue | null) ?? undefined;
  }
  const attributes: Attributes = {};
  keys.forEach((key, index) => {
    const value = own[index];
    if (value === undefined) return;
    attributes[key] = typeof value === "object" && !Array.isArray(value) ? first[key] : value;
  });
  return attributes;
}
