/** The parsed command line. */
export interface Invocation {
  config: string;
  plugins: string[];
  port?: number;
  host?: string;
  /** The words after the command. */
  rest: string[];
  /** The files of `--env-file`. Their variables are in the environment already. */
  envFiles?: readonly string[];
  /** The environment without the variables of those files. */
  inherited?: NodeJS.ProcessEnv;
  /** `generate --check` and `client --check`: compare, do not write. */
  checkOnly: boolean;
  /** `executions end --reason`, and `--user` of the commands that name an execution. */
  reason?: string | undefined;
  user?: string | undefined;
  /** `check --json`, `eval --json`. */
  json?: boolean;
  /** `eval --junit`. */
  junit?: string | undefined;
  /** `init --template` and `--from`. */
  template?: string | undefined;
  from?: string | undefined;
  /** `--record` and `--replay` of `serve` and `eval`. */
  record?: string | undefined;
  replay?: string | undefined;
  /** `client --out`. */
  out?: string | undefined;
}

/** One line on standard output. */
export const say = (line: string): void => void process.stdout.write(`${line}\n`);

/** A mistake in the command line: exit code 2. */
export class Misuse extends Error {}
