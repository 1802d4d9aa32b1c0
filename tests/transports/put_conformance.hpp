// What every transport of puts must do (NOTE [unordered puts], transports/put.hpp). A transport's test makes a PutCase
// and instantiates the suite.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "put_rank.hpp"
#include "ranks.hpp"
#include "transports/put.hpp"

namespace moelink::test {

/// A transport under test.
struct PutCase {
  std::string name;
  /// A reason to skip, or nothing.
  std::function<std::string()> obstacle;
  std::function<std::unique_ptr<PutTransport>(const PutOptions& options)> make;
  /// Whether a put into memory that its owner has taken back is refused by whoever owned it, not by the sender.
  bool owner_notices_lost_region = false;
  /// How ranks are run: threads of this process unless the case says otherwise.
  std::vector<std::string> (*run_ranks)(std::vector<int> nodes,
                                        const std::function<void(Rendezvous&)>& body) = test::run_ranks;
};

inline void PrintTo(const PutCase& transport, std::ostream* out) { *out << transport.name; }

class PutConformance : public ::testing::TestWithParam<PutCase> {
 protected:
  void SetUp() override {
    if (const std::string obstacle = GetParam().obstacle(); !obstacle.empty()) {
      GTEST_SKIP() << obstacle;
    }
  }

  /// Runs `body(rank)` for connected ranks, each in a thread with a region of `region_bytes` to put from and one to put
  /// into; returns what() of what each threw.
  std::vector<std::string> run(
      int num_ranks, std::size_t region_bytes, const std::function<void(PutRank&)>& body,
      const std::function<void(PutOptions&)>& adjust = [](PutOptions&) {}) {
    return GetParam().run_ranks(std::vector<int>(static_cast<std::size_t>(num_ranks), 0), [&](Rendezvous& meet) {
      PutOptions options = options_of(meet);
      adjust(options);
      PutRank rank(meet, GetParam().make(options), options, region_bytes);
      body(rank);
    });
  }
  /// The same; no rank may fail.
  void run_well(
      int num_ranks, std::size_t region_bytes, const std::function<void(PutRank&)>& body,
      const std::function<void(PutOptions&)>& adjust = [](PutOptions&) {}) {
    for (const std::string& failure : run(num_ranks, region_bytes, body, adjust)) {
      EXPECT_EQ(failure, "");
    }
  }

  static PutOptions options_of(Rendezvous& meet) {
    PutOptions options{.rank = meet.rank(), .num_ranks = meet.size()};
    for (int peer = 0; peer < meet.size(); ++peer) {
      if (peer != meet.rank()) options.remotes.push_back(peer);
    }
    return options;
  }
};

inline std::string put_case_name(const ::testing::TestParamInfo<PutCase>& info) { return info.param.name; }

}  // namespace moelink::test
