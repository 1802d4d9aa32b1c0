// transports/verbs on the RDMA ports that this machine has, with its own libibverbs: the conformance suite. All ranks
// run in this process and share the NIC; where a launcher started several processes, the ranks are spread over them.
// scripts/test-verbs-vm.sh runs both over Soft-RoCE in virtual machines.
#include <algorithm>

#include "put_conformance.hpp"
#include "spread_ranks.hpp"
#include "transports/verbs/nic.hpp"
#include "transports/verbs/put.hpp"

namespace moelink::test {
namespace {

std::string why_no_nic() {
  try {
    const auto ports = list_ports(VerbsLibrary::get(""));
    return std::ranges::any_of(ports, &PortInfo::active) ? "" : "no RDMA port is active here";
  } catch (const Error& error) {
    return error.what();
  }
}

PutCase nic_case() {
  return {
      .name = "nic",
      .obstacle = why_no_nic,
      .make =
          [](const PutOptions& options) { return make_verbs_put(options, VerbsSettings::from(Environment::get())); },
      .run_ranks = is_launched() ? run_spread_ranks : run_ranks};
}

INSTANTIATE_TEST_SUITE_P(Verbs, PutConformance, ::testing::Values(nic_case()), put_case_name);

}  // namespace
}  // namespace moelink::test
