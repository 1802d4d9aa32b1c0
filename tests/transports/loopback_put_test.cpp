// transports/loopback: the conformance suite of puts.
#include "transports/loopback/put.hpp"

#include "put_conformance.hpp"

namespace moelink::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Loopback, PutConformance,
                         ::testing::Values(PutCase{
                             .name = "loopback", .obstacle = [] { return std::string(); }, .make = make_loopback_put}),
                         put_case_name);

}  // namespace
}  // namespace moelink::test
