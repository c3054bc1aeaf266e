#!/usr/bin/env bash
# Installs the packages that the build, the tests and the analysis scripts need on Debian 12 or a derivative.
#   scripts/install-deps.sh            compilers, libraries, Python environment in .venv/; with a CUDA toolkit, its disassembler
#   scripts/install-deps.sh --build    only the packages to build and run the program
#   scripts/install-deps.sh --cuda     those of --build, and those for a build for NVIDIA GPUs (preset cuda)
#   scripts/install-deps.sh --has-cuda  install nothing; exit code 0 if the packages for --cuda are installed
#   scripts/install-deps.sh --fuzz     those of --build, and clang with libFuzzer (scripts/fuzz.sh)
#   scripts/install-deps.sh --torch    everything, and PyTorch for benchmarks/compare_*.py (several GB)
# Prints nothing if everything is installed; needs root (or sudo) only if a package is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(
  g++ cmake ninja-build ccache ca-certificates python3
  libopenmpi-dev openmpi-bin libdnnl-dev libhdf5-dev
  libboost-program-options-dev libfmt-dev libgtest-dev libgmock-dev
  libsentencepiece-dev libonig-dev libutf8proc-dev zlib1g-dev libzstd-dev nlohmann-json3-dev libssl-dev
)
# Names in NVIDIA's package sources: compiler, runtime, NVTX, cuBLASLt, NCCL.
cuda_packages=(cuda-nvcc-13-0 cuda-cudart-dev-13-0 cuda-nvtx-13-0 libcublas-dev-13-0 libnccl2 libnccl-dev)
clang_packages=(clang-19 libclang-rt-19-dev libomp-19-dev llvm-19)  # llvm: llvm-symbolizer, for names and lines in reports
test_packages=("${clang_packages[@]}" git clang-format hdf5-tools python3-venv slurm-wlm munge iproute2 procps util-linux patchelf binutils xz-utils bzip2 gzip zstd)

usage() { sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

install_packages() {  # names: installs those that dpkg does not list as installed
  local missing=() as_root=() package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  echo "installing ${missing[*]}"
  if ((EUID != 0)); then
    command -v sudo >/dev/null || { echo "install-deps.sh: run as root, or install: ${missing[*]}" >&2; return 1; }
    as_root=(sudo)
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive)
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

missing_for_cuda() {  # prints the headers of the CUDA toolkit and NCCL that are missing
  local toolkit header
  for toolkit in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr; do
    if [[ -n $toolkit && -x $toolkit/bin/nvcc ]]; then break; fi
    toolkit=''
  done
  for header in cuda_runtime.h cublasLt.h nvtx3/nvToolsExt.h nccl.h; do
    [[ -n $toolkit && (-f $toolkit/include/$header || -f /usr/include/$header) ]] || echo "$header"
  done
}

install_cuda() {  # installs packages unless the toolkit and NCCL are present; fails if the package sources lack them
  local missing package
  missing=$(missing_for_cuda | paste -sd' ')
  [[ -n $missing ]] || return 0
  for package in "${cuda_packages[@]}"; do
    if [[ -z $(apt-cache search --names-only "^$package\$") ]]; then
      {
        echo "install-deps.sh: CUDA needs $missing, and apt has no package $package."
        echo "Install the CUDA toolkit 12.8 or newer with cuBLAS, and NCCL, for example from NVIDIA's package source"
        echo "(https://developer.nvidia.com/cuda-downloads): ${cuda_packages[*]};"
        echo "or set CUDA_HOME to their folder."
      } >&2
      return 1
    fi
  done
  install_packages "${cuda_packages[@]}"
}

install_python() {  # requirements file: installs it, once for each content
  local stamp
  stamp=.venv/$(basename "$1").installed
  cmp -s "$1" "$stamp" && return 0
  .venv/bin/python -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m venv --clear .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$1"
  cp "$1" "$stamp"
}

case ${1:-} in
  '' | --build | --cuda | --fuzz | --torch) ;;
  --has-cuda) [[ -z $(missing_for_cuda) ]]; exit ;;
  --help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac
command -v apt-get >/dev/null || { echo "install-deps.sh: supports only apt; install by hand: ${packages[*]}" >&2; exit 1; }
install_packages "${packages[@]}"
if [[ ${1:-} == --cuda ]]; then install_cuda; fi
if [[ ${1:-} == --fuzz ]]; then install_packages "${clang_packages[@]}"; fi
if [[ ${1:-} == --build || ${1:-} == --cuda || ${1:-} == --fuzz ]]; then exit 0; fi
install_packages "${test_packages[@]}"
install_python scripts/requirements.txt
if [[ -z $(missing_for_cuda) ]]; then install_python scripts/requirements-cuda.txt; fi  # a disassembler
if [[ ${1:-} == --torch ]]; then install_python scripts/requirements-torch.txt; fi
