// Data parallel as an MPI program does it: find the ranks of each token, pack its row once for each of them with its
// ids and weights behind it, tell everybody how many rows come, exchange rows, and place what arrives in expert order;
// parts of sums go the same way back and are added in the order of ranks. As in `SendReceive`, a local Exchange packs
// tokens and adds parts, and another one places rows and sums over this rank's experts; but nothing is known
// beforehand.
#pragma once

#include <span>
#include <vector>

#include "perf/collectives/collectives.hpp"
#include "perf/moe/rival.hpp"

namespace moelink::perf {

/// On the host.
class AllToAll : public Rival {
 public:
  AllToAll(const MoeSets& sets, Collectives& collectives, StreamView stream, Team& team);

  void dispatch(std::size_t set) override;
  void combine(std::size_t set) override;
  void check_combine(std::size_t set, Team& team, Mismatches& mismatches) override;

 private:
  /// What takes the place of one set's Exchange.
  struct Local {
    Exchange packer;                            ///< its experts are the ranks
    Exchange placer;                            ///< its tokens are those that arrive, its experts this rank's
    std::vector<std::int32_t> ranks_of_tokens;  ///< [tokens, most ranks of one], -1 behind the last
    Buffer packed, arrived;                     ///< rows with ids and weights behind each, by destination and by source
    std::int64_t row_bytes, message_bytes;      ///< of a row, and of a row with what is behind it
    std::vector<std::int32_t> ids;              ///< [arrived, top_k] experts of this rank, -1 for others
    std::vector<float> weights;                 ///< [arrived, top_k]
    Buffer parts, parts_home;                   ///< rows of the output type, by source and by destination
    Buffer output;
    RankRows sent, received;
    DispatchArgs pack, place;
    CombineArgs sum_parts, sum_home;
  };
  [[nodiscard]] Local make_local(const MoeSet& set) const;
  void find_ranks(const MoeCase& moe, Local& local) const;
  void write_routing(const MoeCase& moe, const ExpertBatch& packed, Local& local) const;
  void read_routing(const MoeCase& moe, Local& local) const;

  const MoeSets& sets_;
  Collectives& collectives_;
  StreamView stream_;
  Team& team_;
  std::vector<std::int32_t> owner_of_expert_;
  std::vector<Local> locals_;
};

}  // namespace moelink::perf
