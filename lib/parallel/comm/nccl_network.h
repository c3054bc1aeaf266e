#pragma once

#include <string>
#include <vector>

namespace lyceum {

/// The network devices of a machine: interfaces that are running and have an address, in the system's order, and
/// InfiniBand or RoCE adapters with an active port.
struct NetworkDevices {
  std::vector<std::string> interfaces, adapters;
};
/// Returns the devices of this machine.
NetworkDevices network_devices();

/// The variables of the environment that select devices for NCCL. Empty: not set.
struct NcclVariables {
  std::string socket_ifname{};  // NCCL_SOCKET_IFNAME
  std::string ib_hca{};         // NCCL_IB_HCA
  bool ib_disable = false;      // NCCL_IB_DISABLE
};
NcclVariables nccl_variables();

/// Returns the devices that NCCL uses between machines, by NCCL's rules:
/// - Interfaces: those that NCCL_SOCKET_IFNAME selects ("eth,ib": by prefix, "=eth0": by whole name, "^docker": all
///   others). If it is not set, the first of these sets that is not empty: ib…; all but docker…, lo… and virbr…;
///   docker…; lo…; virbr….
/// - Adapters: those that NCCL_IB_HCA selects in the same way, or all if it is not set; none with `ib_disable`.
NetworkDevices devices_of_nccl(const NetworkDevices& machine, const NcclVariables& variables);
/// Returns the reason why NCCL will not start; empty if NCCL_SOCKET_IFNAME is not set or names an interface.
std::string nccl_network_problem(const NetworkDevices& machine, const NcclVariables& variables);
/// Returns "mlx5_0, mlx5_1 (and interface ib0 to connect)", or "interface eth0" without adapters.
std::string text_of(const NetworkDevices& devices);

}  // namespace lyceum
