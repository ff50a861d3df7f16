/** The command `completion`: a script for a shell that completes commands and options. */
import { Misuse } from "./invocation.ts";

const PROGRAMS = ["penstock", "penstock-gateway"];
/** Options that take the name of a file. */
const WITH_FILE = ["--config", "-c", "--plugins", "--env-file", "--out", "--junit"];

type Script = (words: string, options: string) => string;

const SCRIPTS: Readonly<Record<string, Script>> = {
  bash: (words, options) => `_penstock() {
  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}"
  case "$before" in
    ${WITH_FILE.join("|")}) COMPREPLY=($(compgen -f -- "$word")); return ;;
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "${options}" -- "$word")) ;;
    *) if [ "$COMP_CWORD" -eq 1 ]; then COMPREPLY=($(compgen -W "${words}" -- "$word")); else COMPREPLY=($(compgen -f -- "$word")); fi ;;
  esac
}
complete -F _penstock ${PROGRAMS.join(" ")}
`,
  zsh: (words, options) => `#compdef ${PROGRAMS.join(" ")}
_penstock() {
  case "$words[CURRENT]" in
    -*) compadd -- ${options} ;;
    *) if (( CURRENT == 2 )); then compadd -- ${words}; else _files; fi ;;
  esac
}
compdef _penstock ${PROGRAMS.join(" ")}
`,
  fish: (words, options) =>
    PROGRAMS.flatMap((program) => [
      `complete -c ${program} -n __fish_use_subcommand -f -a "${words}"`,
      ...options.split(" ").map((option) => `complete -c ${program} -l ${option.replace("--", "")}`),
      "",
    ]).join("\n"),
};

export function completion(shell: string, commands: readonly string[], options: readonly string[]): number {
  const script = Object.hasOwn(SCRIPTS, shell) ? SCRIPTS[shell] : undefined;
  if (script === undefined) throw new Misuse(`completion needs one of ${Object.keys(SCRIPTS).join(", ")}`);
  const words = [...new Set(commands.map((command) => command.split(" ", 1)[0]))].join(" ");
  process.stdout.write(script(words, options.map((option) => `--${option}`).join(" ")));
  return 0;
}
