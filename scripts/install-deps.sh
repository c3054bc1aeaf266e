#!/usr/bin/env bash
# Installs what the build, the tests and the analysis scripts need on Debian 12 or a relative.
#   scripts/install-deps.sh            compilers, libraries, Python environment in .venv/
#   scripts/install-deps.sh --build    only what building and running the program takes
#   scripts/install-deps.sh --torch    everything and PyTorch, for benchmarks/compare_pytorch.py (several GB)
# Quiet when everything is there; needs root (or sudo) only when a package is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(
  g++ cmake ninja-build ccache ca-certificates python3
  libopenmpi-dev openmpi-bin libdnnl-dev libhdf5-dev
  libboost-program-options-dev libfmt-dev libgtest-dev libgmock-dev
  libsentencepiece-dev nlohmann-json3-dev libssl-dev
)
test_packages=(git clang-format hdf5-tools python3-venv slurm-wlm munge iproute2 procps util-linux)

usage() { sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

install_packages() {  # names: those that dpkg does not know as installed
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

install_python() {  # requirements file: installed once for each content
  local stamp
  stamp=.venv/$(basename "$1").installed
  cmp -s "$1" "$stamp" && return 0
  .venv/bin/python -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m venv --clear .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$1"
  cp "$1" "$stamp"
}

case ${1:-} in
  '' | --build | --torch) ;;
  --help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac
command -v apt-get >/dev/null || { echo "install-deps.sh: knows only apt; install by hand: ${packages[*]}" >&2; exit 1; }
install_packages "${packages[@]}"
if [[ ${1:-} == --build ]]; then exit 0; fi
install_packages "${test_packages[@]}"
install_python scripts/requirements.txt
if [[ ${1:-} == --torch ]]; then install_python scripts/requirements-torch.txt; fi
