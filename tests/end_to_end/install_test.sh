#!/usr/bin/env bash
# Usage: install_test.sh LYCEUM SOURCE_DIR. `cmake --install` installs all files under a prefix, and they work there.
set -euo pipefail
build=$(dirname "$(dirname "$(realpath "$1")")") source=$2
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT

cmake --install "$build" --prefix "$prefix" >/dev/null

version=$("$prefix/bin/lyceum" --version)
[[ $version =~ [0-9]+\.[0-9]+\.[0-9]+ ]] || { echo "lyceum --version printed '$version'"; exit 1; }
cmp "$source/docs/lyceum.1" "$prefix/share/man/man1/lyceum.1"
for file in share/doc/lyceum/README.md share/doc/lyceum/architecture.md; do
  [[ -s $prefix/$file ]] || { echo "$file is missing"; exit 1; }
done
diff <(cd "$source/configs" && find . -name '*.ini' | sort) <(cd "$prefix/share/lyceum/configs" && find . -name '*.ini' | sort)
cmp "$source/scripts/mpi-env.sh" "$prefix/share/lyceum/mpi-env.sh"
cmp "$source/scripts/quickstart.sh" "$prefix/share/lyceum/quickstart.sh"
cmp "$source/scripts/sweep.py" "$prefix/share/lyceum/sweep.py"
diff -r --exclude=__pycache__ "$source/scripts/sweeps" "$prefix/share/lyceum/sweeps"
diff -r "$source/scripts/slurm" "$prefix/share/lyceum/slurm"
python3 -B "$prefix/share/lyceum/sweep.py" --help >/dev/null
resolved=$("$prefix/bin/lyceum" train --config "$prefix/share/lyceum/configs/quickstart.ini" --parallel.expert=1 --print-config)
grep -Eq '^moe\.experts += 15' <<<"$resolved" || { echo "quickstart.ini does not resolve to 15 experts"; exit 1; }

cmake -D "MANIFEST=$build/install_manifest.txt" -P "$source/cmake/uninstall.cmake"
left=$(find "$prefix" -type f -o -name lyceum)
[[ -z $left ]] || { echo "uninstalling left $left"; exit 1; }
