/**
 * Keeps the cost of Ajv's validators linear in the size of the value. With `allErrors` they keep an error for every invalid
 * item, and copy the whole list of errors with each: a list of a hundred thousand numbers in place of messages would take minutes.
 * With this change a loop over items or properties ends once it has found enough errors.
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

/** Variables in the code that Ajv generates: the number of errors, and the list of them (null when empty). */
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
  // `contains` needs one valid item, and tries all items: only the errors of the last one are kept.
  wrapLoops(ajv, "contains", ({ gen }, before, body) => (item) => {
    gen.if(_`${COUNT} > ${before}`, () => {
      gen.assign(COUNT, before);
      const shorten = () => gen.assign(_`${LIST}.length`, before);
      gen.if(before, shorten, () => gen.assign(LIST, null));
    });
    body(item);
  });
}

/** Wraps the loops that a keyword generates, but not those of the schemas inside it. */
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
    /** The code generator for this keyword only; subschemas use the original one. */
    const own: typeof gen = Object.create(gen);
    own.forRange = (name, from, to, body) => {
      const before = gen.const("before", COUNT);
      const loop = () => gen.forRange(name, from, to, wrap(context, before, body));
      // When there are more items than `maxItems`, that is the error, and no item is checked.
      return typeof maxItems === "number" ? gen.if(_`${to} <= ${maxItems}`, loop) : loop();
    };
    own.forIn = (name, object, body) => {
      const before = gen.const("before", COUNT);
      return gen.forIn(name, object, wrap(context, before, body));
    };
    code(Object.assign(Object.create(context), { gen: own }) as KeywordCxt, type);
  };
}
