// transports/ucx: the conformance suite, over what UCX chooses between threads and over tcp.
#include "transports/ucx/put.hpp"

#include <cstdlib>

#include "put_conformance.hpp"

namespace moelink::test {
namespace {

std::string no_ucx() {
  try {
    (void)make_ucx_put({});
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Ucx, PutConformance,
                         ::testing::Values(PutCase{.name = "chosen",
                                                   .obstacle = no_ucx,
                                                   .make = make_ucx_put,
                                                   .owner_notices_lost_region = true},
                                           PutCase{.name = "tcp",
                                                   .obstacle = no_ucx,
                                                   .make =
                                                       [](const PutOptions& options) {
                                                         ::setenv("UCX_TLS", "tcp", 1);  // read at construction
                                                         auto transport = make_ucx_put(options);
                                                         return transport;
                                                       },
                                                   .owner_notices_lost_region = true}),
                         put_case_name);

}  // namespace
}  // namespace moelink::test
