#!/usr/bin/env bash
# Runs the program of this name in libexec/ with the libraries and plugins of this folder, wherever it is.
self=$(readlink -f "${BASH_SOURCE[0]}") || exit
home=${self%/bin/*}
. "$home/env.sh"
# mpirun tells other hosts to start $home/bin/orted, as it takes its own place from its name.
exec -a "$home/bin/${self##*/}" "$home/libexec/${self##*/}" "$@"
