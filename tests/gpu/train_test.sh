#!/usr/bin/env bash
# Usage: train_test.sh LYCEUM SOURCE_DIR. Tests the program on a GPU: losses equal those of the CPU, runs are reproducible
# bit for bit, checkpoints move between CPU and GPU, ranks share a GPU, and with several GPUs NCCL works. Without a GPU it
# prints a line and exits with 77 (not run).
. "$(dirname "$0")/../end_to_end/lib.sh" "$@"
make_data
tiny+=(--model.layers=2 --batch.global=4 --eval.batches=1 --run.steps=8)  # small, because the stand-in is slow
gpu=("${tiny[@]}" --run.device=cuda)

run "$lyceum" "${gpu[@]}" "--run.dir=$work/probe" --run.steps=1
if [[ $code == 2 ]] && grep -q 'sees no GPU' "$work/err"; then
  echo "no device: this test needs a GPU and was not run"
  exit 77
fi
[[ $code == 0 ]] || fail "exit code $code of the first step on a GPU"
says out 'cuda:0'
gpus=$(nvidia-smi -L 2>/dev/null | wc -l || true)
stand_in=0
if grep -q 'stand-in on the host' "$work/out"; then gpus=4 stand_in=1; fi

# losses NAME FIRST: compares the losses of run NAME from step FIRST on, and of validation, with those of the CPU.
losses() {
  for step in 2 6 8; do
    ((step >= $2)) || continue
    close "loss of step $step of $1" "$(metric "$work/$1/metrics.jsonl" $step loss)" \
      "$(metric "$work/cpu/metrics.jsonl" $step loss)" 1e-4
  done
  close "validation loss of $1" "$(metric "$work/$1/metrics.jsonl" 8 valid_loss)" \
    "$(metric "$work/cpu/metrics.jsonl" 8 valid_loss)" 1e-4
}

expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/cpu"
expect 0 "$lyceum" "${gpu[@]}" "--run.dir=$work/gpu"
says out '^kernels +expert GEMMs in the first step: [0-9]+ by (wgmma|mma.sync|plain)'
losses gpu 1

# A run that was stopped and resumed equals an uninterrupted one bit for bit. A CPU resumes from a GPU's checkpoint, and
# a GPU from a CPU's.
expect 0 "$lyceum" "${gpu[@]}" "--run.dir=$work/parts" --run.steps=5 --optim.schedule=constant
expect 0 "$lyceum" "${gpu[@]}" "--run.dir=$work/parts" --optim.schedule=constant
expect 0 "$lyceum" "${gpu[@]}" "--run.dir=$work/whole" --optim.schedule=constant
same_weights "$work/parts/checkpoints/step-00000008" "$work/whole/checkpoints/step-00000008"
five=checkpoints/step-00000005
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/gpu-then-cpu" "--checkpoint.resume=$work/gpu/$five"
losses gpu-then-cpu 6
expect 0 "$lyceum" "${gpu[@]}" "--run.dir=$work/cpu-then-gpu" "--checkpoint.resume=$work/cpu/$five"
losses cpu-then-gpu 6

# Algorithms of matrix products that were chosen by timing are stored in gemm.json. They give the same bits when the run is
# resumed, and in another run that starts from the file. (Each algorithm of the stand-in gives different bits;
# HOST_CUDA_FASTEST_GEMM sets the fastest one.)
timed=("${gpu[@]}" --run.gemm_choice=timed --optim.schedule=constant)
export HOST_CUDA_FASTEST_GEMM=2
expect 0 "$lyceum" "${timed[@]}" "--run.dir=$work/timed"
says out '^gemm +[0-9]+ algorithms chosen by timing'
last=checkpoints/step-00000008
export HOST_CUDA_FASTEST_GEMM=1
expect 0 "$lyceum" "${timed[@]}" "--run.dir=$work/pinned" "--run.gemm_file=$work/timed/gemm.json" --run.steps=5
says out "^gemm +[0-9]+ algorithms from $work/timed/gemm.json"
expect 0 "$lyceum" "${timed[@]}" "--run.dir=$work/pinned"
says out "^gemm +[0-9]+ algorithms from $work/pinned/gemm.json"
same_weights "$work/pinned/$last" "$work/timed/$last"
if ((stand_in)); then
  expect 0 "$lyceum" "${timed[@]}" "--run.dir=$work/unpinned"
  run "$lyceum" checkpoint diff "$work/unpinned/$last" "$work/timed/$last"
  [[ $code != 0 ]] || fail "other algorithms have the same bits: this test shows nothing"
  export HOST_CUDA_CUBLASLT_VERSION=2
  expect 0 "$lyceum" "${timed[@]}" "--run.dir=$work/unpinned" --run.steps=9
  says out "^gemm +algorithms in $work/unpinned/gemm.json are for .*cuBLASLt 1; for .*cuBLASLt 2 they are chosen again"
  unset HOST_CUDA_CUBLASLT_VERSION
  # Each rank would choose another algorithm, but all use the choices of the first.
  favour() { mpirun -n 2 bash -c 'HOST_CUDA_FASTEST_GEMM=$((2 - OMPI_COMM_WORLD_RANK)) exec "$@"' favour "$lyceum" "$@"; }
  shared=("${timed[@]}" --parallel.transport=staged --parallel.expert=2)
  expect 0 favour "${shared[@]}" "--run.dir=$work/shared-parts" --run.steps=5
  expect 0 favour "${shared[@]}" "--run.dir=$work/shared-parts"
  expect 0 favour "${shared[@]}" "--run.dir=$work/shared-whole"
  same_weights "$work/shared-parts/$last" "$work/shared-whole/$last"
fi
unset HOST_CUDA_FASTEST_GEMM
sed -i 's/"proposal":/"proposal" :/' "$work/pinned/gemm.json"
expect 0 "$lyceum" "${timed[@]}" "--run.dir=$work/pinned" --run.steps=9
sed -i 's/"accumulate":false/"accumulate":true/' "$work/pinned/gemm.json"
expect 3 "$lyceum" "${timed[@]}" "--run.dir=$work/pinned" --run.steps=10
says err 'pinned/gemm.json: it was changed after it was written .*remove it, and run.gemm_file if that names it'

# Several ranks share one GPU.
staged=("${gpu[@]}" --parallel.transport=staged)
expect 0 ranks 2 "${staged[@]}" --parallel.expert=2 --parallel.zero=2 "--run.dir=$work/experts"
losses experts 1
# Overlapping two micro-batches does not change the result.
by_turns=(--parallel.expert=2 --batch.micro=1 --parallel.zero=1)
expect 0 ranks 2 "${staged[@]}" "${by_turns[@]}" --parallel.overlap=none "--run.dir=$work/alone"
expect 0 ranks 2 "${staged[@]}" "${by_turns[@]}" --parallel.overlap=batches "--run.dir=$work/overlapped"
same_weights "$work/overlapped/$last" "$work/alone/$last"
axes=(--parallel.pipeline=2 --parallel.tensor=2 --parallel.sequence=true --parallel.expert=2 --parallel.zero=3
  --parallel.schedule=zb-h1 --batch.micro=2)
expect 0 ranks 4 "${staged[@]}" "${axes[@]}" "--run.dir=$work/axes"
losses axes 1

# One GPU per rank. (HOST_CUDA_DEVICES sets the number of GPUs of the stand-in for CUDA.)
export HOST_CUDA_DEVICES=4
if ((gpus >= 2)); then
  expect 0 ranks 2 "${gpu[@]}" --parallel.transport=nccl --parallel.expert=2 "--run.dir=$work/nccl"
  losses nccl 1
  expect 0 ranks 2 "${gpu[@]}" --parallel.transport=nccl "${by_turns[@]}" --parallel.overlap=none "--run.dir=$work/nccl-alone"
  expect 0 ranks 2 "${gpu[@]}" --parallel.transport=nccl "${by_turns[@]}" --parallel.overlap=batches \
    "--run.dir=$work/nccl-overlapped"
  same_weights "$work/nccl-overlapped/$last" "$work/nccl-alone/$last"
  NCCL_SOCKET_IFNAME=nothing expect 2 ranks 2 "${gpu[@]}" --parallel.transport=nccl "--run.dir=$work/no-network"
  says err 'host .*: NCCL_SOCKET_IFNAME = nothing selects none of the network interfaces .*: correct or unset it'
  # On two hosts, the start names the network. (The second rank only has another host name.)
  if unshare --uts true 2> /dev/null; then
    on_two_hosts() {
      mpirun -n 1 "$lyceum" "$@" : -n 1 unshare --uts sh -c 'echo other > /proc/sys/kernel/hostname && exec "$@"' sh "$lyceum" "$@"
    }
    expect 0 on_two_hosts "${gpu[@]}" --parallel.transport=nccl --parallel.nccl_channels=2 "--run.dir=$work/two-hosts" --run.steps=1
    says out '^network +NCCL: .*interfaces? .* on all 2 hosts$'
  fi
  # One operation of NCCL after another gives the same bits.
  expect 0 ranks 2 "${gpu[@]}" --parallel.transport=nccl --parallel.nccl_order=serial "${by_turns[@]}" \
    --parallel.overlap=batches "--run.dir=$work/nccl-serial"
  same_weights "$work/nccl-serial/$last" "$work/nccl-alone/$last"
fi
if ((gpus >= 4)); then
  expect 0 ranks 4 "${gpu[@]}" --parallel.transport=nccl "${axes[@]}" "--run.dir=$work/nccl-axes"
  losses nccl-axes 1
  expect 0 ranks 4 "${gpu[@]}" --parallel.transport=nccl --parallel.nccl_order=serial "${axes[@]}" "--run.dir=$work/serial-axes"
  same_weights "$work/serial-axes/$last" "$work/nccl-axes/$last"
fi

expect 0 "$lyceum" eval "--checkpoint=$work/gpu/checkpoints" --run.device=cuda
expect 0 "$lyceum" generate "--checkpoint=$work/gpu/checkpoints" --run.device=cuda --prompt "The " --tokens 5
[[ -s $work/out ]] || fail "nothing was generated"
