// Which mode an Exchange gets: a pure function of configuration and topology.
#include <gtest/gtest.h>

#include "exchange/modes/mode_choice.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

/// Ranks on the host, `nodes[r]` the node of rank r; ranks of one node map each other unless `link` says otherwise.
Topology ranks_on(const std::vector<int>& nodes, Link link = Link::process) {
  std::vector<RankInfo> ranks;
  std::vector<std::vector<Link>> links;
  for (std::size_t r = 0; r < nodes.size(); ++r) {
    RankInfo info;
    info.rank = static_cast<int>(r);
    info.node_id = std::to_string(nodes[r]);
    info.node = nodes[r];
    ranks.push_back(info);
    links.emplace_back();
    for (std::size_t to = 0; to < nodes.size(); ++to) {
      links.back().push_back(to == r ? Link::self : nodes[r] == nodes[to] ? link : Link::none);
    }
  }
  return {ranks, links};
}

void expect_refused(const ExchangeConfig& config, const Topology& topology, ErrorCode code,
                    std::initializer_list<const char*> words) {
  try {
    (void)choose_mode(config, topology);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const char* word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << "'" << word << "' is not in: " << error.what();
    }
  }
}

TEST(ModeChoice, AutomaticGoesByRanksInputsAndReach) {
  EXPECT_EQ(choose_mode({}, ranks_on({0})), Mode::local);
  EXPECT_EQ(choose_mode({.replicated_inputs = true}, ranks_on({0})), Mode::local);
  EXPECT_EQ(choose_mode({.replicated_inputs = true}, ranks_on({0, 0})), Mode::tensor_parallel);
  EXPECT_EQ(choose_mode({}, ranks_on({0, 0, 0})), Mode::nvlink);
  EXPECT_EQ(choose_mode({}, ranks_on({0, 0, 1})), Mode::p2p);
  EXPECT_EQ(choose_mode({}, ranks_on({0, 0}, Link::none)), Mode::p2p) << "one node, but nobody can map anybody";
}

TEST(ModeChoice, ModesAskedForByNameAreTakenWhereTheyWork) {
  EXPECT_EQ(choose_mode({.mode = Mode::tensor_parallel}, ranks_on({0})), Mode::tensor_parallel);
  EXPECT_EQ(choose_mode({.mode = Mode::nvlink, .replicated_inputs = true}, ranks_on({0, 0})), Mode::nvlink);
  EXPECT_EQ(choose_mode({.mode = Mode::p2p}, ranks_on({0, 0})), Mode::p2p);
}

TEST(ModeChoice, ModesThatCannotReachARankAreRefusedByNamesAndNumbers) {
  expect_refused({.mode = Mode::local}, ranks_on({0, 0}), ErrorCode::invalid_argument, {"local", "has 2"});
  expect_refused({.mode = Mode::tensor_parallel}, ranks_on({0, 1}), ErrorCode::unsupported, {"tp", "2 nodes"});
  expect_refused({.replicated_inputs = true}, ranks_on({0, 1}), ErrorCode::unsupported, {"tp", "2 nodes"});
  expect_refused({.mode = Mode::nvlink}, ranks_on({0, 0}, Link::none), ErrorCode::unsupported,
                 {"nvlink", "rank 0 cannot map the memory of rank 1"});
  expect_refused({.mode = static_cast<Mode>(9)}, ranks_on({0}), ErrorCode::invalid_argument, {"mode is 9"});
}

}  // namespace
}  // namespace moelink
