import { Argument, type Command } from 'commander';
import { described } from '../command.ts';

const shells = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof shells)[number];

/** Words that can follow a given part of a command line, with the description of each. */
interface Completion {
  /** The preceding words, each with a leading space; empty directly after `penstock`. */
  path: string;
  words: { word: string; meaning: string; isCommand: boolean }[];
}

export function addCompletion(program: Command): void {
  described(program.command('completion'), {
    sentence: 'Print the completion script for a shell.',
    example: 'completion bash >> ~/.bashrc',
  })
    .addArgument(new Argument('<shell>', 'shell for which to print the script').choices(shells))
    .action((shell: Shell) => void process.stdout.write(scripts[shell](completionsOf(program))));
}

/** Collects the places of a command and its subcommands from the program, so that the script is always complete. */
export function completionsOf(command: Command, path = ''): Completion[] {
  const help = command.createHelp();
  const commands = help.visibleCommands(command).filter((one) => command.commands.includes(one));
  const options = help
    .visibleOptions(command)
    .flatMap(({ long, description }) => (long ? [[long, description]] : []));
  const choices = command.registeredArguments.flatMap(({ argChoices = [], description }) =>
    argChoices.map((choice) => [choice, description]),
  );
  const words = [
    ...commands.map((one) => ({ word: one.name(), meaning: one.description(), isCommand: true })),
    ...[...choices, ...options].map(([word, meaning]) => ({
      word: word!,
      meaning: meaning!,
      isCommand: false,
    })),
  ];
  return [{ path, words }, ...commands.flatMap((one) => completionsOf(one, `${path} ${one.name()}`))];
}

/** Builds a shell function that prints the words of a place. It works in bash and zsh. */
function wordsFunction(completions: Completion[]): string {
  const cases = completions.map(
    ({ path, words }) => `    '${path}') echo '${words.map(({ word }) => word).join(' ')}' ;;`,
  );
  return ['_penstock_words() {', '  case "$1" in', ...cases, '  esac', '}'].join('\n');
}

const scripts: Record<Shell, (completions: Completion[]) => string> = {
  bash: (completions) => `# penstock completion bash >> ~/.bashrc
${wordsFunction(completions)}
_penstock() {
  local at='' word index
  for ((index = 1; index < COMP_CWORD; index++)); do
    word="\${COMP_WORDS[index]}"
    if [ -n "$(_penstock_words "$at $word")" ]; then at="$at $word"; fi
  done
  COMPREPLY=($(compgen -W "$(_penstock_words "$at")" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _penstock penstock
`,

  zsh: (completions) => `#compdef penstock
# penstock completion zsh > "\${fpath[1]}/_penstock"
${wordsFunction(completions)}
_penstock() {
  local at='' word
  for word in "\${(@)words[2,CURRENT-1]}"; do
    if [ -n "$(_penstock_words "$at $word")" ]; then at="$at $word"; fi
  done
  compadd -- \${=$(_penstock_words "$at")} || _files
}
if [ "$funcstack[1]" = _penstock ]; then _penstock "$@"; else compdef _penstock penstock; fi
`,

  fish: (completions) => `# penstock completion fish > ~/.config/fish/completions/penstock.fish
set -g __penstock_places ${completions.map(({ path }) => `'${path}'`).join(' ')}
function __penstock_at
  set -l at ''
  for word in (commandline -opc)[2..-1]
    if contains -- "$at $word" $__penstock_places
      set at "$at $word"
    end
  end
  test "$at" = "$argv[1]"
end
${completions.flatMap(fishLines).join('\n')}
`,
};

function fishLines({ path, words }: Completion): string[] {
  const quoted = (text: string) => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
  return words.map(({ word, meaning }) => {
    const what = word.startsWith('--') ? `-l ${word.slice(2)}` : `-f -a ${word}`;
    return `complete -c penstock -n "__penstock_at '${path}'" ${what} -d ${quoted(meaning)}`;
  });
}
