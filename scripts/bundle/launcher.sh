#!/usr/bin/env bash
# Runs the program of this name in libexec/ with the libraries and plugins of this folder, wherever it is.
self=$(readlink -f "${BASH_SOURCE[0]}") || exit
home=${self%/bin/*}
. "$home/env.sh"
# mpirun makes other hosts start $home/bin/orted: it derives its folder from its name.
exec -a "$home/bin/${self##*/}" "$home/libexec/${self##*/}" "$@"
