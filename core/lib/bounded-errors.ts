/**
 * Makes validators of Ajv cost no more than the size of what they check. Asked for all errors, they keep one for every
 * faulty item, and copy the whole list with each: a list of a hundred thousand numbers, where messages belong, would take
 * minutes. Here a loop over items or properties ends once it has found enough.
 */
import { _, type Ajv2020, type CodeKeywordDefinition, type KeywordCxt, Name } from "ajv/dist/2020.js";

/** Keywords that check each item or each property. */
const LOOPS = [
  "items",
  "additionalProperties",
  "patternProperties",
  "propertyNames",
  "unevaluatedItems",
  "unevaluatedProperties",
];

type Loop = (item: Name) => void;

/** What Ajv calls them in its code: how many errors there are, and the errors, null for none. */
const COUNT = new Name("errors");
const LIST = new Name("vErrors");

/** @param most errors that one loop may find */
export function boundErrors(ajv: Pick<Ajv2020, "getKeyword">, most: number): void {
  const enough = (before: Name) => _`${COUNT} - ${before} >= ${most}`;
  for (const keyword of LOOPS) {
    wrapLoops(ajv, keyword, ({ gen }, before, body) => (item) => {
      gen.if(enough(before), () => gen.break());
      body(item);
    });
  }
  // One item that fits is enough, so that all are tried: what the last one did wrong stands for all of them.
  wrapLoops(ajv, "contains", ({ gen }, before, body) => (item) => {
    gen.if(_`${COUNT} > ${before}`, () => {
      gen.assign(COUNT, before);
      const shorten = () => gen.assign(_`${LIST}.length`, before);
      gen.if(before, shorten, () => gen.assign(LIST, null));
    });
    body(item);
  });
}

/** Has the code of a keyword's loops changed, not that of the schemas inside them. */
function wrapLoops(
  ajv: Pick<Ajv2020, "getKeyword">,
  keyword: string,
  wrap: (context: KeywordCxt, before: Name, body: Loop) => Loop,
): void {
  const definition = ajv.getKeyword(keyword) as CodeKeywordDefinition;
  const { code } = definition;
  definition.code = (context, type) => {
    const { gen } = context;
    const { maxItems } = context.parentSchema as { maxItems?: unknown };
    /** The generator as this keyword sees it; subschemas write with the one that they have always had. */
    const own: typeof gen = Object.create(gen);
    own.forRange = (name, from, to, body) => {
      const before = gen.const("before", COUNT);
      const loop = () => gen.forRange(name, from, to, wrap(context, before, body));
      // Where there are too many, that is said, and none is looked at.
      return typeof maxItems === "number" ? gen.if(_`${to} <= ${maxItems}`, loop) : loop();
    };
    own.forIn = (name, object, body) => {
      const before = gen.const("before", COUNT);
      return gen.forIn(name, object, wrap(context, before, body));
    };
    code(Object.assign(Object.create(context), { gen: own }) as KeywordCxt, type);
  };
}
