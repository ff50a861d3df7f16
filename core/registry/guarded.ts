/** What a plugin made, where it is called from many places: its methods give promises, and fail with what is safe to look at. */
import { caught } from "../lib/errors.ts";

type Method = (...given: unknown[]) => unknown;

/** Those of `names` that `made` has. */
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
