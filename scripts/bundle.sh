#!/usr/bin/env bash
# Creates a folder that runs on machines where nothing can be installed: the program, Open MPI's runtime, and the
# libraries that both need except glibc; and an archive of the folder next to it. See docs/bundle.md for its use.
#
#   scripts/bundle.sh [options] [FOLDER]     FOLDER: new, or a bundle to replace (default build/bundle/lyceum)
#     --build DIR     the build to use (default build/cpu; with --gpu build/cuda)
#     --tests         also include the test programs, in tests/
#     --benchmarks    also include the benchmarks, in benchmarks/
#     --gpu           also include gpu.sh, which runs all checks of a GPU, and the tests and benchmarks that it needs
#     --with-cuda     also include cuBLASLt and NCCL (large)
#     --no-archive    create only the folder
#
# Build first, for the intended CPUs: cmake --preset cpu -DLYCEUM_ARCH=x86-64-v4 (or -v3); and for one GPU architecture:
# cmake --preset cuda -DLYCEUM_ARCH=x86-64-v3 -DLYCEUM_CUDA_ARCHITECTURES=90a-real. Without --with-cuda no CUDA
# library is included: on a GPU the programs look for libcublasLt, and for several GPUs for libnccl, as docs/bundle.md says.
# The driver is always the machine's.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
fail() { echo "bundle.sh: $1" >&2; exit "${2:-1}"; }
warn() { echo "bundle.sh: warning: $1" >&2; }

build='' tests=0 benchmarks=0 gpu=0 with_cuda=0 archive=1 bundle=
while (($#)); do
  case $1 in
    --build) build=${2:?--build needs a folder}; shift ;;
    --tests) tests=1 ;;
    --benchmarks) benchmarks=1 ;;
    --gpu) gpu=1 ;;
    --with-cuda) with_cuda=1 ;;
    --no-archive) archive=0 ;;
    --help | -h) usage; exit 0 ;;
    -*) usage >&2; fail "no such option: $1" 2 ;;
    *) [[ -z $bundle ]] || fail "two folders given: $bundle and $1" 2; bundle=$1 ;;
  esac
  shift
done
bundle=${bundle:-$source/build/bundle/lyceum}
build=${build:-$source/build/$( ((gpu)) && echo cuda || echo cpu)}
limit_mib=64  # largest archive: many sites accept no more by mail, ticket or browser

for tool in patchelf strip cmake ldd; do
  command -v $tool >/dev/null || fail "needs $tool (scripts/install-deps.sh installs it)"
done
programs=(apps/lyceum)
if ((gpu)); then
  programs+=(tests/{gpu_test,gpu_training_test,gpu_mpi_test,nccl_carrier_test} benchmarks/bench_{train_step,grouped_gemm_cuda})
fi
for program in "${programs[@]}"; do
  [[ -x $build/$program ]] || fail "no program $build/$program: cmake --build $build --target ${programs[*]##*/}"
done
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

# The Open MPI with which the build is configured.
mpi_bin=$(dirname "$(cached MPIEXEC_EXECUTABLE)")
[[ -x $mpi_bin/ompi_info && -x $mpi_bin/orted ]] || fail "$mpi_bin has no ompi_info and orted: only Open MPI can be bundled"
mpi_folder() { "$mpi_bin/ompi_info" --path "$1" --parsable | cut -d: -f3; }

# An incomplete bundle never has its final name.
if [[ -e $bundle && ! -f $bundle/env.sh ]]; then fail "$bundle exists and is not a bundle"; fi
mkdir -p "$(dirname "$bundle")"
partial=$(mktemp -d "$bundle.XXXXXX")
trap 'rm -rf "$partial"' EXIT
chmod 755 "$partial"

copy_program() {  # file, folder in the bundle: without debug information
  mkdir -p "$partial/$2"
  strip --strip-debug -o "$partial/$2/$(basename "$1")" "$1"
}

# Program, man page, configurations, batch scripts and documentation, as every installation has them.
cmake --install "$build" --prefix "$partial" >/dev/null
rm "$partial/bin/lyceum"
copy_program "$build/apps/lyceum" libexec
for name in mpirun orted; do copy_program "$(readlink -f "$mpi_bin/$name")" libexec; done
[[ -e $partial/libexec/mpirun ]] || mv "$partial/libexec/orterun" "$partial/libexec/mpirun"
for name in lyceum mpirun orted; do install -m 755 "$source/scripts/bundle/launcher.sh" "$partial/bin/$name"; done
install -m 755 "$source/scripts/bundle/no-ssh.sh" "$partial/bin/no-ssh"
install -m 644 "$source/scripts/bundle/env.sh" "$partial/env.sh"

programs_in() { find "$build/$1" -maxdepth 1 -type f -executable -name "$2" | sort; }
if ((tests)); then
  for file in $(programs_in tests '*_test'); do copy_program "$file" tests; done
  [[ -d $partial/tests ]] || fail "no test programs in $build/tests: cmake --build $build"
fi
if ((benchmarks)); then
  for file in $(programs_in benchmarks 'bench_*'); do copy_program "$file" benchmarks; done
  [[ -d $partial/benchmarks ]] || fail "no benchmarks in $build/benchmarks: cmake --build $build"
fi
if ((gpu)); then
  for program in "${programs[@]:1}"; do copy_program "$build/$program" "$(dirname "$program")"; done
  install -m 755 "$source"/scripts/{gpu.sh,gpu_tests.py,gpu_collect.py} "$partial/"
fi
if ((benchmarks || gpu)); then install -m 644 "$source"/benchmarks/{compare_pytorch,pytorch_model}.py "$partial/benchmarks/"; fi

# Open MPI's plugins, except those that need a fabric's libraries: TCP and shared memory are available everywhere.
mkdir -p "$partial/lib/openmpi" "$partial/share" "$partial/etc"
for plugin in "$(mpi_folder pkglibdir)"/mca_*.so; do
  case $plugin in
    *_ucx.so | *_ofi.so | *_openib.so | *_psm.so | *_psm2.so | *_uct.so | *_usnic.so | *_portals4.so | *_flux.so) ;;
    */mca_memheap_*.so | */mca_scoll_*.so | */mca_spml_*.so | */mca_sshmem_*.so | */mca_atomic_*.so) ;;  # OpenSHMEM's
    *) copy_program "$plugin" lib/openmpi ;;
  esac
done
cp -r "$(mpi_folder pkgdatadir)" "$partial/share/openmpi"
rm -f "$partial"/share/openmpi/*wrapper-data.txt
cp "$(mpi_folder sysconfdir)/openmpi-mca-params.conf" "$partial/etc/"
pmix=$(ldd "$partial"/lib/openmpi/mca_pmix_*.so | awk '/libpmix\.so/ { print $3; exit }')
if [[ -n $pmix ]]; then  # otherwise PMIx is part of Open MPI
  pmix=$(dirname "$(readlink -f "$pmix")")
  mkdir -p "$partial/lib/pmix"
  for plugin in "$pmix"/pmix/*.so; do copy_program "$plugin" lib/pmix; done
  cp -r "$(dirname "$pmix")/share/pmix" "$partial/share/"
  cp "$(dirname "$pmix")"/{share,etc}/pmix-mca-params.conf "$partial/etc/" 2>/dev/null || true
fi

# All linked libraries except glibc, which must match the kernel and the loader of the machine.
elf_files() {
  find "$partial" -type f \( -path "$partial/libexec/*" -o -path "$partial/tests/*" -o -path "$partial/benchmarks/bench_*" \
    -o -name '*.so*' \)
}
mkdir "$partial/libs"
glibc='^(ld-linux.*|libc|libm|libmvec|libdl|libpthread|librt|libresolv|libutil|libanl|libnsl)\.so'
driver='^(libcuda|libnvidia.*)\.so'
cuda='^(libcudart|libcublas|libcublasLt|libnccl|libnvrtc.*|libnvJitLink|libcudnn.*)\.so'
leave_out=$glibc\|$driver
((with_cuda)) || leave_out=$leave_out\|$cuda
found=$(elf_files | xargs ldd 2>/dev/null)
for_gpus=$(cached NCCL_INCLUDE)  # only a build for GPUs looks for its headers
if [[ $for_gpus ]]; then  # these are loaded on demand, so ldd does not list them
  for key in CUDA_cublasLt_LIBRARY NCCL_LIBRARY; do
    library=$(cached $key)
    [[ -f $library || $with_cuda == 0 ]] || fail "the build knows no $key to include: install it and configure again"
    [[ ! -f $library ]] || found+=$'\n'"$(objdump -p "$library" | awk '$1 == "SONAME" { print $2 }') => $library"
  done
  cublaslt_name=$(awk '$1 ~ /^libcublasLt\.so/ { print $1; exit }' <<<"$found")
fi
missing=$(awk '/not found/ { print $1 }' <<<"$found" | sort -u)
for library in $missing; do
  [[ $library =~ $leave_out ]] || fail "$library, which the build links, is not found"
done
awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' <<<"$found" | sort -u | while read -r name file; do
  [[ $name =~ $leave_out ]] || strip --strip-debug -o "$partial/libs/$name" "$(readlink -f "$file")"
done
# RPATH instead of RUNPATH takes precedence over LD_LIBRARY_PATH, which may contain another Open MPI of the site.
while read -r file; do
  up=$(dirname "${file#"$partial/"}" | sed 's,[^/]\+,..,g')
  patchelf --force-rpath --set-rpath "\$ORIGIN/$up/libs" "$file"
done < <(elf_files)

commit=$(git -C "$source" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
echo "$commit" >"$partial/etc/commit"
arch=$(cached LYCEUM_ARCH)
glibc_version=$(elf_files | xargs objdump -T 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
if [[ $arch == native ]]; then
  arch=$(g++ -march=native -Q --help=target 2>/dev/null | awk '$1 == "-march=" { print $2 }')
  warn "built with -march=native ($arch): on another CPU it may end with an illegal instruction; for other CPUs configure with"
  warn "cmake -B $build -DLYCEUM_ARCH=x86-64-v4 (AVX-512) or x86-64-v3 (AVX2)"
fi
{
  "$build/apps/lyceum" --version
  echo "For x86-64 CPUs with the features of -march=$arch, and Linux with glibc ${glibc_version#GLIBC_} or newer."
  echo
  echo "  bin/lyceum --help"
  echo "  bin/mpirun -n 4 bin/lyceum train --config share/lyceum/configs/quickstart.ini ..."
  ((!gpu)) || echo "  ./gpu.sh --help   # all checks of a GPU"
  echo
  echo "The folder can be anywhere, and can be moved. See share/doc/lyceum/bundle.md."
  if [[ $for_gpus ]] && ((with_cuda)); then
    echo "Built for NVIDIA GPUs: cuBLASLt and NCCL are in libs/; the driver is the machine's."
  elif [[ $for_gpus ]]; then
    echo "Built for NVIDIA GPUs: on a GPU it needs ${cublaslt_name:-libcublasLt.so}, on several also libnccl.so.2. They are searched for in"
    echo "LD_LIBRARY_PATH, the system's folders, \$CUDA_HOME/lib64, /usr/local/cuda/lib64, and NVIDIA's packages of Python."
  fi
} >"$partial/README"

rm -rf "$bundle"
mv "$partial" "$bundle"
echo "$bundle: $(du -sm "$bundle" | cut -f1) MB, for -march=$arch and glibc ${glibc_version#GLIBC_}"
if ((archive)); then
  # The programs contain the same libraries. A dictionary that holds all of them stores the common parts once.
  tar -C "$(dirname "$bundle")" --owner=0 --group=0 -c "$(basename "$bundle")" |
    xz -T1 --lzma2=preset=1,dict=256MiB >"$bundle.tar.xz.partial"
  mv "$bundle.tar.xz.partial" "$bundle.tar.xz"
  size=$(du -m "$bundle.tar.xz" | cut -f1)
  echo "$bundle.tar.xz: $size MB"
  ((with_cuda || size <= limit_mib)) || fail "the archive is larger than $limit_mib MB: omit the tests, or split the archive"
fi
