/** What happens in a simulation, from its seed, and which part of it is enough to make it fail. */
import { type Random, randomOf } from "../fuzz/random.ts";
import type { Build } from "./build.ts";
import { CLIENT_KINDS, type ClientKind } from "./clients.ts";
import type { Network } from "./database.ts";
import { EARLIER } from "./earlier.ts";
import { simulate } from "./simulation.ts";

export type Action = { readonly at: number } & (
  | {
      readonly kind: "client";
      readonly does: ClientKind;
      readonly number: number;
      /** The key of what it has begun in an earlier release. */
      readonly earlier?: string;
    }
  /** At a call of its store, which happens or does not. */
  | {
      readonly kind: "crash";
      readonly service: number;
      readonly calls: number;
      readonly happens: boolean;
      readonly rest: number;
    }
  | { readonly kind: "stop"; readonly service: number; readonly rest: number }
  | { readonly kind: "reload"; readonly service: number }
  | { readonly kind: "cut"; readonly service: number; readonly milliseconds: number }
  /** Null: until another process has taken it for gone. */
  | { readonly kind: "freeze"; readonly service: number; readonly milliseconds: number | null }
  | { readonly kind: "jump"; readonly service: number; readonly milliseconds: number }
  | { readonly kind: "network"; readonly network: Network; readonly milliseconds: number }
);

/** A simulation that can be repeated: with `only`, so much of its plan. */
export interface Case {
  readonly seed: number;
  readonly steps: number;
  readonly only?: readonly number[];
  /** What may happen, where that is less than all. */
  readonly kinds?: Partial<Kinds>;
  /** Whether it begins with the rows of an earlier release, and half the steps. Default: one in four does. */
  readonly earlier?: boolean | undefined;
}

export const BREAKING = ["crash", "crash", "crash", "stop", "reload", "cut", "freeze", "jump", "network"] as const;
const LAST_MS = 10_000;

export function planOf(one: Case): Action[] {
  const { seed, steps, only, kinds: given = {} } = one;
  const random = randomOf(seed);
  // Some of the seeds break nothing, where that is not what they are for.
  const breaking = random.pick(given.faults === undefined ? [0, 0.1, 0.3, 0.5] : [0.3, 0.5]);
  // And some have one kind of client or fault alone: what needs several of a kind happens there.
  const alone = <T>(all: readonly T[]): readonly T[] => (random.chance(0.4) ? [random.pick(all)] : all);
  const kinds = { clients: alone(given.clients ?? CLIENT_KINDS), faults: alone(given.faults ?? BREAKING) };
  const left = leftFor(one);
  // Those clients are a load as well.
  const length = left.length === 0 ? steps : Math.ceil(steps / 2);
  const actions = Array.from({ length }, (_, number) => actionOf(random, number, random.chance(breaking), kinds));
  for (const { does, key } of left) {
    const number = actions.length;
    actions.push({ at: random.below(LAST_MS), kind: "client", does, number, earlier: key });
  }
  return only === undefined ? actions : actions.filter((_, number) => only.includes(number));
}

/** What has begun in an earlier release. Each has a client, or it would be left as it is. */
const leftFor = ({ seed, kinds = {}, earlier = kinds.clients === undefined && seed % 4 === 0 }: Case) =>
  earlier ? EARLIER.left : [];

export interface Kinds {
  readonly clients: readonly ClientKind[];
  readonly faults: readonly (typeof BREAKING)[number][];
}

function actionOf(random: Random, number: number, breaks: boolean, { clients, faults }: Kinds): Action {
  const at = random.below(LAST_MS);
  const service = random.below(3);
  const rest = random.pick([100, 2_000, 12_000]);
  if (!breaks) return { at, kind: "client", does: random.pick(clients), number };
  const kind = random.pick(faults);
  switch (kind) {
    case "crash":
      return { at, kind, service, calls: 1 + random.below(12), happens: random.chance(0.5), rest };
    case "stop":
      return { at, kind, service, rest };
    case "reload":
      return { at, kind, service };
    case "freeze":
      return { at, kind, service, milliseconds: random.pick([500, 4_000, 15_000, null, null]) };
    case "cut":
      return { at, kind, service, milliseconds: random.pick([500, 4_000, 15_000]) };
    case "jump":
      return { at, kind, service, milliseconds: random.below(60_000) - 30_000 };
    case "network": {
      const some = () => random.pick([0, 0.02, 0.2, 0.6]);
      const network = { slow: some(), refused: some() / 2, unanswered: some(), unheard: random.pick([0, 0.5, 1]) };
      return { at, kind, network, milliseconds: random.pick([2_000, 15_000]) };
    }
  }
}

/** A complaint without what differs from one plan to the other: ids, numbers, and texts that were read. */
const kindOf = (complaint: string | null): string | null =>
  complaint
    ?.split(/[:[{]/)
    .slice(0, 2)
    .join()
    .replaceAll(/\S*\d\S*/g, "") ?? null;

/** Leaves out of a case that fails what it does not need. */
export async function shrink(build: Build, one: Case): Promise<Case> {
  const { only } = one;
  const complaintOf = async (kept: readonly number[] | undefined) =>
    kindOf((await simulate(build, one.seed, planOf({ ...one, ...(kept && { only: kept }) }))).complaint);
  const wanted = await complaintOf(only);
  const fails = async (kept: readonly number[]) => (await complaintOf(kept)) === wanted;
  let kept = only ?? planOf(one).map((_, number) => number);
  for (let size = Math.ceil(kept.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let from = 0; from < kept.length; ) {
      const fewer = [...kept.slice(0, from), ...kept.slice(from + size)];
      if (await fails(fewer)) kept = fewer;
      else from += size;
    }
  }
  return { ...one, only: kept };
}
