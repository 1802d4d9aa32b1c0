// Ranks as threads of one process, on the host: everyone reads what it needs from the others.
#pragma once

#include <memory>

#include "perf/collectives/collectives.hpp"

namespace moelink::perf {

class SharedMemoryCollectives : public Collectives {
 public:
  /// Collective.
  SharedMemoryCollectives(const Communicator& communicator, StreamView stream, Team& team);
  ~SharedMemoryCollectives() override;

  [[nodiscard]] std::string name() const override { return "host memory"; }
  void all_gather(const void* mine, void* all, std::int64_t bytes) override;
  void reduce_scatter(const void* all, void* mine, std::int64_t count, DataType type) override;
  void all_to_all(const void* send, void* receive, std::int64_t bytes) override;
  void exchange(const void* send, const RankRows& sent, void* receive, const RankRows& received,
                std::int64_t row_bytes) override;

 private:
  struct Board;
  void meet();
  void show(const void* data, const RankRows* rows);

  Communicator communicator_;
  StreamView stream_;
  Team& team_;
  std::shared_ptr<Board> board_;  // one for all ranks
  std::uint64_t meetings_ = 0;
};

}  // namespace moelink::perf
