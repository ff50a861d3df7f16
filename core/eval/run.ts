/** Runs cases against a service in this process. */
import type { Logger } from "pino";
import { perform } from "../api/routes/perform.ts";
import type { Service } from "../app/service.ts";
import type { Context } from "../http/route.ts";
import { NOBODY } from "../identity/caller.ts";
import { untilAborted } from "../lib/abortable.ts";
import { messageOf } from "../lib/errors.ts";
import { withoutSecrets } from "../lib/secrets.ts";
import { createTurns } from "../lib/turns.ts";
import type { Models } from "../models/models.ts";
import { withoutCredentials } from "../observability/redaction.ts";
import { type CaseOutcome, type FailedExpectation, failuresOf } from "./expectations.ts";
import { judge } from "./judge.ts";
import type { Eval, LoadedEvals } from "./load.ts";

export interface CaseReport {
  readonly name: string;
  readonly passed: boolean;
  /** Tokens of the run without those of the judge; null when none were counted. */
  readonly tokens: number | null;
  readonly milliseconds: number;
  readonly failures: readonly FailedExpectation[];
}

interface Bench {
  readonly service: Service;
  readonly models: Models;
  readonly logger: Logger;
  /** Aborts the cases that run, and prevents others from starting. */
  readonly signal: AbortSignal;
}

/** Runs the cases in the order of the file. Never rejects: a case that cannot be run has failed. */
export function runEvals({ evals, concurrency }: LoadedEvals, bench: Bench): Promise<CaseReport[]> {
  const inTurn = createTurns(concurrency);
  return Promise.all(evals.map((each, index) => inTurn(() => runEval(each, `eval-${index + 1}`, bench))));
}

async function runEval(wanted: Eval, requestId: string, bench: Bench): Promise<CaseReport> {
  const begun = performance.now();
  const limit = limited(bench);
  let outcome: CaseOutcome | null = null;
  let failures: FailedExpectation[];
  try {
    limit.signal.throwIfAborted();
    const call = callOf(wanted, requestId, limit.signal, bench);
    outcome = await untilAborted(OUTCOMES[wanted.target.kind](wanted, call), limit.signal);
    failures = failuresOf(wanted, outcome);
    const { question } = wanted;
    // The judge costs money, and adds nothing for a case that has failed already.
    if (question !== null && failures.length === 0) {
      const failure = await untilAborted(judge({ ...wanted, question }, outcome, call, bench.models), limit.signal);
      if (failure !== null) failures = [failure];
    }
  } catch (error) {
    const expectation = outcome === null ? "answer" : "judge";
    const expected = outcome === null ? "an answer" : "a verdict";
    failures = [{ expectation, expected, got: describe(error) }];
  } finally {
    limit.end();
  }
  const milliseconds = Math.round(performance.now() - begun);
  return { name: wanted.name, passed: failures.length === 0, tokens: outcome?.tokens ?? null, milliseconds, failures };
}

/** Limits a case to the time of a request of the service. */
function limited({ service, signal }: Bench): { readonly signal: AbortSignal; end(): void } {
  const { request } = service.manifest.server.limits;
  const own = new AbortController();
  const late = () => own.abort(new Error(`nothing within ${request / 1_000} s (server.limits.request)`));
  const timer = setTimeout(late, request);
  return { signal: AbortSignal.any([signal, own.signal]), end: () => clearTimeout(timer) };
}

const callOf = (
  { user }: Eval,
  requestId: string,
  signal: AbortSignal,
  { service, logger }: Bench,
): Context<Service> => ({
  service,
  user,
  caller: user === null ? NOBODY : { kind: "user" },
  requestId,
  signal,
  logger: logger.child({ requestId }),
  client: { address: "127.0.0.1", scheme: "http", host: "localhost", origin: null },
  headers: {},
});

const OUTCOMES: Readonly<
  Record<Eval["target"]["kind"], (wanted: Eval, call: Context<Service>) => Promise<CaseOutcome>>
> = {
  async agent({ target: { id }, request: body }, call) {
    const result = await perform<"TextResult">(call, "agents.generateText", { params: { id }, body });
    const tools = result.toolCalls.map(({ toolName: name, input }) => ({ name, input }));
    return { text: result.text, value: result.output, tools, tokens: result.usage.totalTokens };
  },
  async workflow({ target: { id }, request: body }, call) {
    const { status, result, suspension, error } = await perform<"ExecutionResult">(call, "workflows.execute", {
      params: { id },
      body,
    });
    const value = result ?? null;
    return { text: JSON.stringify(value ?? suspension ?? error), value, tools: [], tokens: null, status };
  },
};

/**
 * Describes an error with its causes, which clients of the service do not see, but without secrets that a provider has quoted: reports
 * end up in the logs of CI systems.
 */
function describe(thrown: unknown): string {
  const { cause } = (thrown ?? {}) as { readonly cause?: unknown };
  const message = messageOf(thrown);
  const behind = cause === undefined ? "" : messageOf(cause);
  const whole = message.includes(behind) ? message : `${message} (${behind})`;
  return withoutCredentials(withoutSecrets(whole)).replace(/\s+/g, " ");
}
