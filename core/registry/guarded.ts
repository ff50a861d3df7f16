/** Wraps an instance that a plugin created: its methods always return promises, and reject with errors that are safe to inspect. */
import { caught } from "../lib/errors.ts";

type Method = (...given: unknown[]) => unknown;

/** @param names of the methods to wrap; those that `made` does not have are left out */
export function guarded<T extends object, K extends keyof T & string>(made: T, names: readonly K[]): Pick<T, K> {
  const methods: Record<string, Method> = {};
  for (const name of names) {
    const method = made[name] as Method | undefined;
    if (typeof method === "function") methods[name] = (...given) => run(() => method.apply(made, given));
  }
  return methods as Pick<T, K>;
}

async function run(work: () => unknown): Promise<unknown> {
  try {
    return await work();
  } catch (thrown) {
    throw caught(thrown);
  }
}
