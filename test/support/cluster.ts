/** Starts processes that share a PostgreSQL, asks them to do things, and stops them in all the ways there are. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import type { Asked, MemberOptions } from "./cluster-member.ts";
import { TYPESCRIPT } from "./command-line.ts";

const MEMBER = fileURLToPath(new URL("cluster-member.ts", import.meta.url));

export interface Member {
  readonly child: ChildProcess;
  readonly pid: number;
  /** Everything it has logged. */
  readonly lines: readonly string[];
  // biome-ignore lint/suspicious/noExplicitAny: answers of many shapes
  ask(asked: Asked): Promise<any>;
  /** SIGKILL: resolves when it is gone. */
  kill(): Promise<void>;
}

export async function startMember(t: TestContext, options: MemberOptions): Promise<Member> {
  const child = fork(MEMBER, [JSON.stringify(options)], { execArgv: TYPESCRIPT });
  const exited = once(child, "exit");
  const kill = async () => {
    child.kill("SIGKILL");
    await exited;
  };
  t.after(kill);
  const lines: string[] = [];
  const waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  let number = 0;
  await new Promise<void>((resolve, reject) => {
    child.on("message", (said: { ready?: true; log?: string; number?: number; value?: unknown; error?: string }) => {
      if (said.ready) resolve();
      if (said.log !== undefined) lines.push(said.log);
      const asked = said.number === undefined ? undefined : waiting.get(said.number);
      if (said.error === undefined) asked?.resolve(said.value);
      else asked?.reject(new Error(said.error));
    });
    child.on("exit", (code) => reject(new Error(`it ended with ${code} before it was ready: ${lines.join("\n")}`)));
  });
  return {
    child,
    pid: child.pid!,
    lines,
    kill,
    ask(asked) {
      const answered = new Promise((resolve, reject) => waiting.set(++number, { resolve, reject }));
      // A process that is killed answers nothing.
      answered.catch(() => {});
      child.send({ number, asked });
      return answered;
    },
  };
}
