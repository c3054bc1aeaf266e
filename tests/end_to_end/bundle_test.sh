#!/usr/bin/env bash
# Usage: bundle_test.sh LYCEUM SOURCE_DIR. A bundle that was unpacked in another folder trains on two ranks, in an environment
# without Open MPI, and loads nothing from this machine but glibc (and CUDA's libraries).
. "$(dirname "$0")/lib.sh" "$@"
make_data
build=$(dirname "$(dirname "$lyceum")")

expect 0 "$source/scripts/bundle.sh" --build "$build" "$work/made/lyceum"
says out '^.*/made/lyceum\.tar\.xz: [0-9]+ MB$'
if grep -q '^LYCEUM_ARCH:STRING=native$' "$build/CMakeCache.txt"; then says err 'warning: built with -march=native \(.+\)'; fi
mkdir "$work/else where"
tar -C "$work/else where" -xJf "$work/made/lyceum.tar.xz"
rm -r "$work/made"
bundle="$work/else where/lyceum"

# Settings of a site that must have no effect: the folder of another Open MPI, a TMPDIR that does not exist.
clean=(env -i "HOME=$work" PATH=/usr/bin:/bin OMP_NUM_THREADS=1 "LD_LIBRARY_PATH=/usr/lib/$(uname -m)-linux-gnu"
  OPAL_PREFIX=/usr "TMPDIR=$work/gone")
while read -r _ setting; do clean+=("$setting"); done < <(grep '^export ' "$bundle/share/lyceum/mpi-env.sh")

# If this is permitted, hides the installed MPI, so that a bundle can use only its own files.
installed=$(ls -d /usr/share/openmpi /etc/openmpi /usr/lib/*/{openmpi,pmix2} 2>/dev/null || true)
hidden=(unshare --user --map-root-user --mount bash -c 'for folder in $1; do mount -t tmpfs none "$folder"; done; shift; exec "$@"'
  bash "$installed")
if "${hidden[@]}" true 2>/dev/null; then clean=("${hidden[@]}" "${clean[@]}"); fi

# loaded: prints the files that the processes of the last `traced` loaded, without repetitions.
traced=("${clean[@]}" LD_DEBUG=files "LD_DEBUG_OUTPUT=$work/loaded")
loaded() { sed -n 's/.*calling init: //p' "$work"/loaded.* | tr '\n' '\0' | xargs -0 realpath -s | sort -u; }

expect 0 "${traced[@]}" "$bundle/bin/mpirun" -n 2 "$bundle/bin/lyceum" "${tiny[@]}" --run.steps=4 --parallel.expert=2
! grep -v '^lyceum' "$work/err" | grep . || fail "a start from the bundle prints warnings"
[[ -d $work/run/checkpoints/step-00000004 ]] || fail "the bundled program left no checkpoint"
loaded >"$work/libraries"
for library in libs/libmpi.so.40 libs/libhdf5_serial.so.103 lib/openmpi/mca_pml_ob1.so lib/openmpi/mca_btl_vader.so \
  lib/pmix/pmix_mca_prm_default.so; do
  grep -qxF "$bundle/$library" "$work/libraries" || fail "$library was not loaded from the bundle"
done
# bash, which starts the programs, loads libtinfo.
strangers=$(grep -vF "$bundle/" "$work/libraries" | grep -Ev \
  '/(ld-linux[^/]*|lib(c|m|mvec|dl|pthread|rt|resolv|util|tinfo|cuda|cudart|cublas|cublasLt|nccl|nvidia[^/]*))\.so[^/]*$' || true)
equal "libraries of this machine that a bundle loads" "$strangers" ""

# Without mpirun. The bundled program is the same one: both give the same weights.
expect 0 "${clean[@]}" "$bundle/bin/lyceum" checkpoint verify "$work/run/checkpoints/step-00000004"
expect 0 ranks 2 "${tiny[@]}" --run.steps=4 --parallel.expert=2 "--run.dir=$work/built"
same_weights "$work/run/checkpoints/step-00000004" "$work/built/checkpoints/step-00000004"
# The bundle contains the messages of Open MPI.
run "${clean[@]}" "$bundle/bin/mpirun" -n 1 "$work/no-such-program"
says err 'mpirun was unable to (find|launch) the specified'

# The environment for the batch scripts and for programs in tests/ and benchmarks/.
expect 0 "${clean[@]}" bash -c 'set -eu; bundle=$1; . "$bundle/env.sh"; [[ $bundle == "$1" ]]; command -v mpirun; mpirun -n 1 lyceum --version' bash "$bundle"
says out "^$bundle/bin/mpirun$"

# If a bundle cannot be made, this is reported before anything is written.
expect 1 "$source/scripts/bundle.sh" --build "$work/no-build" "$work/made/lyceum"
says err 'no program .*/no-build/apps/lyceum'
expect 1 "$source/scripts/bundle.sh" --gpu --build "$work/no-build" "$work/made/lyceum"
says err '--target lyceum gpu_test .* bench_grouped_gemm_cuda$'
expect 1 "$source/scripts/bundle.sh" --build "$build" "$work/data"
says err 'is not a bundle'
expect 2 "$source/scripts/bundle.sh" --no-such-option
