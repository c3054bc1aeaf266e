#!/usr/bin/env bash
# Usage: command_line_test.sh LYCEUM SOURCE_DIR. Tests the command line: messages on misspelt words suggest the right one, the
# help of every command has the same layout, and a shell completes commands, options, keys and values.
. "$(dirname "$0")/lib.sh" "$@"

# refused COMMAND PATTERN ARGUMENTS …: one line, exit code 2.
refused() {
  expect 2 "$lyceum" "$1" "${@:3}"
  says err "^lyceum $1: $2"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
}
refused trian "no such command 'trian': did you mean train\?"
refused frobnicate "no such command 'frobnicate': see .lyceum --help."
refused generate "--temperature = -1: must be 0 .* or more" --prompt x --temperature -1
refused generate "--tokens = -3: must be 0 or more" --prompt x --tokens -3
refused generate "--top-k = -1: must be 0 .* or more" --prompt x --top-k=-1
refused generate "--top-p = 0: must be above 0 and at most 1" --prompt x --top-p=0
refused generate "--stop .* would end every text" --prompt x --stop ''
refused generate ".*--temprature.*: did you mean --temperature\?" --temprature=1
refused train ".*--lr.*: did you mean --optim.lr\?" --lr=1
refused eval "--batches = -1: must be 0 .* or more" --batches=-1

# --- help: usage, description, options
mapfile -t commands < <("$lyceum" --help | sed -n 's/^  \([a-z]\+\)  .*/\1/p')
((${#commands[@]} >= 8)) || fail "too few commands in the help: ${commands[*]}"
for command in "${commands[@]}"; do
  expect 0 "$lyceum" "$command" --help
  [[ $(head -n 1 "$work/out") =~ ^"usage: ".*"lyceum $command " ]] || fail "$command --help does not begin with its usage"
  [[ $(sed -n 2p "$work/out") == '' ]] || fail "$command --help has no line below its usage"
  says out '^options:$'
  says out '^  --help  +show this text$'
done

# --- completion: as bash requests it, with words split at spaces and =
expect 0 "$lyceum" completion bash
. "$work/out"
# completes WORDS … ANSWERS: expects these completions of the last word, in order.
completes() {
  COMP_WORDS=(lyceum "${@:1:$#-1}") COMP_CWORD=$(($# - 1))
  _lyceum
  equal "completion of ${*:1:$#-1}" "${COMPREPLY[*]}" "${*:$#}"
}
completes tr train
completes train --optim.lr --optim.lr=
completes train --model.hid --model.hidden=
completes train --run.device = 'auto cpu cuda'
completes train --run.device = c 'cpu cuda'
completes train --run.device=c '--run.device=cpu --run.device=cuda'
completes train --run.dir = x ''
completes generate --t '--tokens --temperature --top-k --top-p --timing'
completes generate --optim.b '--optim.beta1= --optim.beta2='
completes checkpoint v verify
completes routing d 'dump difficult domains'
completes routing --h '--html --h5 --help'
completes tokenize --re --retrain
for command in "${commands[@]}"; do completes "$command" "$command"; done
expect 2 "$lyceum" completion fish
