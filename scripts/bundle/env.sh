# shellcheck shell=bash
# Lets Open MPI and PMIx find their files in this folder, wherever it stands. The programs in bin/ do this by themselves;
# source it for those in tests/ and benchmarks/, and name it in LYCEUM_ENVIRONMENT for the batch scripts:
#   . env.sh && mpirun -n 2 tests/mesh_mpi_test
bundle=$(cd "${BASH_SOURCE[0]%/*}" && pwd -P)
case ":$PATH:" in
  ":$bundle/bin:"*) ;;
  *) export PATH=$bundle/bin:$PATH ;;
esac
# Another Open MPI that is set up here, by a site's modules for instance, is not ours.
export OPAL_PREFIX=$bundle OPAL_BINDIR=$bundle/bin OPAL_LIBDIR=$bundle/lib OPAL_PKGLIBDIR=$bundle/lib/openmpi
export OPAL_DATADIR=$bundle/share OPAL_PKGDATADIR=$bundle/share/openmpi OPAL_SYSCONFDIR=$bundle/etc
export PMIX_PREFIX=$bundle PMIX_LIBDIR=$bundle/lib PMIX_PKGLIBDIR=$bundle/lib/pmix PMIX_DATADIR=$bundle/share
export PMIX_PKGDATADIR=$bundle/share/pmix PMIX_SYSCONFDIR=$bundle/etc
export PMIX_MCA_mca_base_component_path=$bundle/lib/pmix
# Without it mpirun refuses to start where there is no ssh, ranks on this host alone included.
if ! { type ssh || type rsh; } &>/dev/null; then export OMPI_MCA_plm_rsh_agent=$bundle/bin/no-ssh; fi
# Nor are the plugins of another hwloc.
export HWLOC_PLUGINS_PATH=$bundle/lib/hwloc
# Open MPI keeps sockets and shared memory there; a folder of the login node's may not exist on the others, and a long path
# does not fit into the name of a socket.
if [[ -n ${TMPDIR:-} && (! -w $TMPDIR || ${#TMPDIR} -gt 60) ]]; then export TMPDIR=/tmp; fi
# CUDA's libraries are looked for last where toolkits put them, unless they came with the bundle.
for folder in ${CUDA_HOME:+"$CUDA_HOME/lib64"} /usr/local/cuda/lib64; do
  if [[ -d $folder && :${LD_LIBRARY_PATH:-}: != *":$folder:"* ]]; then
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
  fi
done
LYCEUM_COMMIT=$(<"$bundle/etc/commit")  # for the records that benchmarks write
export LYCEUM_COMMIT
unset bundle folder
