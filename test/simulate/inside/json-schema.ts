/** Stands in for the compiler of JSON Schemas: what one process has compiled, the next ones have too. The result only computes. */
import type { ValidateFunction } from "ajv/dist/2020.js";
import { createSchemaCompiler as create, type SchemaCompiler } from "../../../core/lib/json-schema.ts";

export * from "../../../core/lib/json-schema.ts";

const COMPILED = new Map<string, ValidateFunction>();

export function createSchemaCompiler(options: { defaults?: boolean } = {}): SchemaCompiler {
  let own: SchemaCompiler | undefined;
  return {
    compile(schema) {
      const text = JSON.stringify([options, schema]);
      let compiled = COMPILED.get(text);
      if (compiled === undefined) {
        own ??= create(options);
        compiled = own.compile(schema);
        COMPILED.set(text, compiled);
      }
      return compiled;
    },
  };
}
