#include "parallel/comm/nccl_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lyceum {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

const NetworkDevices machine{.interfaces = {"lo", "eth0", "eth1", "ib0", "docker0"},
                             .adapters = {"mlx5_0", "mlx5_1", "mlx5_10"}};

std::vector<std::string> interfaces_for(const std::string& socket_ifname) {
  return devices_of_nccl(machine, {.socket_ifname = socket_ifname}).interfaces;
}
std::vector<std::string> adapters_for(const std::string& ib_hca, bool disable = false) {
  return devices_of_nccl(machine, {.ib_hca = ib_hca, .ib_disable = disable}).adapters;
}

TEST(NcclNetwork, VariablesSelectDevicesAsInNccl) {
  EXPECT_THAT(interfaces_for("eth"), ElementsAre("eth0", "eth1"));
  EXPECT_THAT(interfaces_for("eth1,ib"), ElementsAre("eth1", "ib0"));
  EXPECT_THAT(interfaces_for("=eth"), IsEmpty());
  EXPECT_THAT(interfaces_for("=eth0"), ElementsAre("eth0"));
  EXPECT_THAT(interfaces_for("^lo,docker,eth"), ElementsAre("ib0"));
  EXPECT_THAT(interfaces_for("^=eth0,lo"), ElementsAre("eth1", "ib0", "docker0"));
  EXPECT_THAT(interfaces_for(""), ElementsAre("ib0"));
  EXPECT_THAT(adapters_for(""), ElementsAre("mlx5_0", "mlx5_1", "mlx5_10"));
  EXPECT_THAT(adapters_for("mlx5_1"), ElementsAre("mlx5_1", "mlx5_10"));
  EXPECT_THAT(adapters_for("=mlx5_1:1,mlx5_0"), ElementsAre("mlx5_0", "mlx5_1"));
  EXPECT_THAT(adapters_for("^mlx5_1"), ElementsAre("mlx5_0"));
  EXPECT_THAT(adapters_for("", true), IsEmpty());
}

TEST(NcclNetwork, WithoutVariablesTheBestKindOfInterfaceIsUsed) {
  const auto chosen = [](std::vector<std::string> interfaces) {
    return devices_of_nccl({.interfaces = std::move(interfaces), .adapters = {}}, {}).interfaces;
  };
  EXPECT_THAT(chosen({"lo", "eth0", "bond1", "docker0", "virbr0"}), ElementsAre("eth0", "bond1"));
  EXPECT_THAT(chosen({"lo", "docker0", "virbr0"}), ElementsAre("docker0"));
  EXPECT_THAT(chosen({"lo", "virbr0"}), ElementsAre("lo"));
  EXPECT_THAT(chosen({"virbr0"}), ElementsAre("virbr0"));
  EXPECT_THAT(chosen({}), IsEmpty());
}

TEST(NcclNetwork, AVariableThatSelectsNothingIsReported) {
  EXPECT_EQ(nccl_network_problem(machine, {.socket_ifname = "wlan"}),
            "NCCL_SOCKET_IFNAME = wlan selects none of the network interfaces lo, eth0, eth1, ib0, docker0: correct or "
            "unset it");
  EXPECT_EQ(nccl_network_problem(machine, {.socket_ifname = "eth"}), "");
  EXPECT_EQ(nccl_network_problem(machine, {}), "");
}

TEST(NcclNetwork, HasAText) {
  EXPECT_EQ(text_of(devices_of_nccl(machine, {.socket_ifname = "ib", .ib_hca = "=mlx5_0"})),
            "mlx5_0 (and interface ib0 to connect)");
  EXPECT_EQ(text_of(NetworkDevices{.interfaces = {"eth0", "eth1"}, .adapters = {}}), "interfaces eth0, eth1");
  EXPECT_EQ(text_of(NetworkDevices{.interfaces = {"eth0", "eth1"}, .adapters = {"mlx5_0"}}),
            "mlx5_0 (and interface eth0 to connect)")
      << "connects over the first";
  EXPECT_EQ(text_of(NetworkDevices{}), "no interface");
}

TEST(NcclNetwork, ThisMachineHasTheLoopbackInterface) { EXPECT_THAT(network_devices().interfaces, Contains("lo")); }

}  // namespace
}  // namespace lyceum
