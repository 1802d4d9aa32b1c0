// One rank's part of measuring puts between pairs of ranks: 0 and 1, 2 and 3, ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "moelink/puts.hpp"
#include "perf/common/statistics.hpp"
#include "perf/put/settings.hpp"

namespace moelink::perf {

struct PutResult {
  Percentiles latency_us;     ///< half a round trip, of the slowest pair
  double bandwidth_gbps = 0;  ///< one way, of the slowest pair
  double million_puts = 0;    ///< a second, of the slowest pair
  std::optional<std::int64_t> wrong;
};

class PutBench {
 public:
  /// Collective. `most_bytes`: the largest put.
  PutBench(const Communicator& communicator, const PutFlags& flags, const std::string& transport,
           std::size_t most_bytes);

  /// Collective. Every rank gets the same result.
  [[nodiscard]] PutResult run(std::size_t size_bytes);
  [[nodiscard]] std::string describe() const { return puts_.describe(); }

 private:
  void put(std::size_t slot, std::size_t size_bytes);
  /// Until so many more have arrived than were waited for before.
  void wait_arrived(std::uint64_t more);
  void wait_sent(std::uint64_t count);
  void poll();
  void ping_pong(std::size_t size_bytes, int count, std::vector<double>* half_trips_us);
  [[nodiscard]] double stream_seconds(std::size_t size_bytes, int count);
  [[nodiscard]] std::int64_t check_round(std::size_t size_bytes, std::uint64_t round);
  [[nodiscard]] int iterations_of(std::size_t size_bytes) const;

  Communicator communicator_;
  const PutFlags& flags_;
  int peer_;
  bool starts_;  // of its pair
  std::size_t slot_bytes_;
  std::size_t num_slots_;
  std::vector<std::byte> memory_;  // what is put, then what has come: num_slots_ slots each
  Puts puts_;
  std::uint64_t num_put_ = 0;
  std::uint64_t num_sent_ = 0;
  std::uint64_t num_arrived_ = 0;
  std::uint64_t num_expected_ = 0;
};

}  // namespace moelink::perf
