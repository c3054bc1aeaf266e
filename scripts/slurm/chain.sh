#!/usr/bin/env bash
# Submits jobs that follow each other, for sites without requeue: each resumes where the previous one stopped. The rest of
# the chain is cancelled when the run is complete, or after an error that must be fixed first.
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
echo "to cancel the whole chain: scancel --name=$LYCEUM_CHAIN"
