# shellcheck shell=bash
# Makes Open MPI and PMIx find their files in this folder, wherever it is. The programs in bin/ source this file themselves.
# Source it before programs in tests/ and benchmarks/, and set LYCEUM_ENVIRONMENT to its path for the batch scripts:
#   . env.sh && mpirun -n 2 tests/parallel_mpi_test
lyceum_bundle=$(cd "${BASH_SOURCE[0]%/*}" && pwd -P)
case ":$PATH:" in
  ":$lyceum_bundle/bin:"*) ;;
  *) export PATH=$lyceum_bundle/bin:$PATH ;;
esac
# These override the settings of another Open MPI, for example from a site's modules.
export OPAL_PREFIX=$lyceum_bundle OPAL_BINDIR=$lyceum_bundle/bin OPAL_SYSCONFDIR=$lyceum_bundle/etc
export OPAL_LIBDIR=$lyceum_bundle/lib OPAL_PKGLIBDIR=$lyceum_bundle/lib/openmpi
export OPAL_DATADIR=$lyceum_bundle/share OPAL_PKGDATADIR=$lyceum_bundle/share/openmpi
export PMIX_PREFIX=$lyceum_bundle PMIX_SYSCONFDIR=$lyceum_bundle/etc
export PMIX_LIBDIR=$lyceum_bundle/lib PMIX_PKGLIBDIR=$lyceum_bundle/lib/pmix
export PMIX_DATADIR=$lyceum_bundle/share PMIX_PKGDATADIR=$lyceum_bundle/share/pmix
export PMIX_MCA_mca_base_component_path=$lyceum_bundle/lib/pmix
# Without ssh, mpirun would otherwise not even start ranks on this host.
if ! { type ssh || type rsh; } &>/dev/null; then export OMPI_MCA_plm_rsh_agent=$lyceum_bundle/bin/no-ssh; fi
# The plugins of another hwloc must not be loaded. This folder does not exist, so none are.
export HWLOC_PLUGINS_PATH=$lyceum_bundle/lib/hwloc
# Open MPI keeps sockets and shared memory in TMPDIR. A folder of the login node may not exist on other nodes, and a long path
# does not fit into the name of a socket.
if [[ -n ${TMPDIR:-} && (! -w $TMPDIR || ${#TMPDIR} -gt 60) ]]; then export TMPDIR=/tmp; fi
LYCEUM_COMMIT=$(<"$lyceum_bundle/etc/commit")  # for the records that benchmarks write
export LYCEUM_COMMIT
unset lyceum_bundle
