#include "parallel/comm/nccl_network.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <system_error>

#include "core/error.h"

namespace lyceum {
namespace {

/// Returns the names that a list of NCCL selects: prefixes separated by commas, each up to a colon; "=" in front: whole
/// names; "^" in front: all other names. An empty list selects all.
std::vector<std::string> selected(const std::vector<std::string>& names, std::string_view list) {
  const auto take = [&](char mark) {
    const bool there = list.starts_with(mark);
    if (there) list.remove_prefix(1);
    return there;
  };
  const bool others = take('^'), whole = take('=');
  std::vector<std::string_view> wanted;
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    if (const auto name = entry.substr(0, entry.find(':')); !name.empty()) wanted.push_back(name);
  }
  std::vector<std::string> result;
  for (const std::string& name : names) {
    const bool listed = wanted.empty() || std::ranges::any_of(wanted, [&](std::string_view one) {
                          return whole ? name == one : name.starts_with(one);
                        });
    if (listed != others) result.push_back(name);
  }
  return result;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Returns the entries of a folder, as far as they can be read.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code failed;
  std::filesystem::directory_iterator next(folder, failed);
  for (; !failed && next != std::filesystem::directory_iterator(); next.increment(failed)) {
    entries.push_back(next->path());
  }
  return entries;
}

/// True if a port of the adapter in this folder of /sys/class/infiniband is active.
bool is_active(const std::filesystem::path& adapter) {
  for (const std::filesystem::path& port : entries_of(adapter / "ports")) {
    std::ifstream file(port / "state");
    std::string state;  // "4: ACTIVE"
    if (std::getline(file, state) && state.find("ACTIVE") != state.npos) return true;
  }
  return false;
}

}  // namespace

NetworkDevices network_devices() {
  NetworkDevices devices;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
    for (const ifaddrs* one = list; one; one = one->ifa_next) {
      const bool running = one->ifa_addr && (one->ifa_flags & IFF_RUNNING);
      const int family = running ? one->ifa_addr->sa_family : AF_UNSPEC;
      const bool addressed = family == AF_INET ||
                             (family == AF_INET6 &&
                              !IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr));
      if (addressed && std::ranges::find(devices.interfaces, one->ifa_name) == devices.interfaces.end()) {
        devices.interfaces.emplace_back(one->ifa_name);
      }
    }
  }
  for (const std::filesystem::path& adapter : entries_of("/sys/class/infiniband")) {
    if (is_active(adapter)) devices.adapters.push_back(adapter.filename().string());
  }
  std::ranges::sort(devices.adapters);
  return devices;
}

NcclVariables nccl_variables() {
  const std::string disable = variable("NCCL_IB_DISABLE");
  return {.socket_ifname = variable("NCCL_SOCKET_IFNAME"),
          .ib_hca = variable("NCCL_IB_HCA"),
          .ib_disable = !disable.empty() && disable != "0"};
}

NetworkDevices devices_of_nccl(const NetworkDevices& machine, const NcclVariables& variables) {
  NetworkDevices devices;
  if (variables.socket_ifname.size() > 1) {  // NCCL ignores shorter values
    devices.interfaces = selected(machine.interfaces, variables.socket_ifname);
  } else {
    for (const char* kind : {"ib", "^docker,lo,virbr", "docker", "lo", "virbr"}) {
      devices.interfaces = selected(machine.interfaces, kind);
      if (!devices.interfaces.empty()) break;
    }
  }
  if (!variables.ib_disable) devices.adapters = selected(machine.adapters, variables.ib_hca);
  return devices;
}

std::string nccl_network_problem(const NetworkDevices& machine, const NcclVariables& variables) {
  if (variables.socket_ifname.size() <= 1 || !devices_of_nccl(machine, variables).interfaces.empty()) return "";
  return format_message("NCCL_SOCKET_IFNAME = {} selects none of the network interfaces {}: correct or unset it",
                        {variables.socket_ifname, joined(machine.interfaces)});
}

std::string text_of(const NetworkDevices& devices) {
  const auto& [interfaces, adapters] = devices;
  const std::string first = interfaces.empty() ? "no interface" : "interface " + interfaces[0];
  if (!adapters.empty()) return joined(adapters) + " (and " + first + " to connect)";
  return interfaces.size() > 1 ? "interfaces " + joined(interfaces) : first;
}

}  // namespace lyceum
