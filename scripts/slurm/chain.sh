#!/usr/bin/env bash
# Jobs that follow each other, for sites without requeue: each goes on where the one before it stopped, and what is left
# of the chain is dropped when the run is complete or a mistake needs a person.
#
#   scripts/slurm/chain.sh COUNT [options of sbatch] scripts/slurm/train.sbatch configs/NAME.ini [--section.key=value …]
set -euo pipefail
[[ ${1:-} =~ ^[1-9][0-9]*$ && $# -ge 3 ]] || { sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
count=$1
shift
LYCEUM_CHAIN=lyceum-chain-$(date +%s)-$$  # the jobs' name; job.sh reads it
export LYCEUM_CHAIN
before=()
for ((i = 0; i < count; ++i)); do
  id=$(sbatch --parsable --job-name="$LYCEUM_CHAIN" --no-requeue "${before[@]}" "$@")
  echo "job $((i + 1)) of $count: ${id%%;*}"
  before=("--dependency=afternotok:${id%%;*}" --kill-on-invalid-dep=yes)
done
echo "end the whole chain: scancel --name=$LYCEUM_CHAIN"
