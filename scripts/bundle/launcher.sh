#!/usr/bin/env bash
# Runs the program with the name of this script from libexec/, with the libraries and plugins of the bundle.
self=$(readlink -f "${BASH_SOURCE[0]}") || exit
home=${self%/bin/*}
. "$home/env.sh"
# mpirun derives the path of orted on other hosts, $home/bin/orted, from its own name, so this must be the one in bin/.
exec -a "$home/bin/${self##*/}" "$home/libexec/${self##*/}" "$@"
