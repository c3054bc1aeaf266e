#!/usr/bin/env bash
# Installs what the build, the tests and the analysis scripts need on Debian 12 or a relative.
#   scripts/install-deps.sh            compilers, libraries, Python environment in .venv/
#   scripts/install-deps.sh --torch    PyTorch too, for benchmarks/compare_pytorch.py (several GB)
# Quiet when everything is there; needs root (or sudo) only when a package is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  g++ cmake ninja-build ccache git ca-certificates
  libopenmpi-dev openmpi-bin libdnnl-dev libhdf5-dev hdf5-tools
  libboost-program-options-dev libfmt-dev libgtest-dev libgmock-dev
  libsentencepiece-dev nlohmann-json3-dev libssl-dev
  python3 python3-venv
)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
  echo "installing ${missing[*]}"
  as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || { echo "install-deps.sh: run as root, or install: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
  fi
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

venv=.venv
[[ -x $venv/bin/python ]] || /usr/bin/python3 -m venv "$venv"
install_python() {  # requirements file: installed once for each content
  local stamp="$venv/$(basename "$1").installed"
  cmp -s "$1" "$stamp" && return
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$1"
  cp "$1" "$stamp"
}
install_python scripts/requirements.txt
if [[ ${1:-} == --torch ]]; then install_python scripts/requirements-torch.txt; fi
