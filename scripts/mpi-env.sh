# shellcheck shell=bash
# What Open MPI needs where ranks outnumber cores or root starts them: source it before mpirun.
#   . scripts/mpi-env.sh && mpirun -n 8 build/cpu/apps/lyceum train --config configs/quickstart.ini
# Containers and CI run as root.
export OMPI_ALLOW_RUN_AS_ROOT=1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# More ranks than cores: place them anywhere, and let a waiting rank give its core to one that works.
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1
# Containers often forbid reading another process's memory; two copies through shared memory always work.
export OMPI_MCA_btl_vader_single_copy_mechanism=none
