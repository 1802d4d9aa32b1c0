#include "perf/all_reduce/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "moelink/error.hpp"
#include "perf/common/host_piece.hpp"
#include "perf/common/payload.hpp"
#include "perf/common/random.hpp"
#include "perf/common/timing.hpp"
#include "perf/reference/element.hpp"
#include "perf/reference/mismatch.hpp"

namespace moelink::perf {
namespace {

/// Calls in one sample: many for small messages, so that the ranks' start in a sample hardly counts.
int calls_per_sample(const AllReduceFlags& flags, std::int64_t size_bytes) {
  if (flags.measure.num_sets != 0) return flags.measure.num_sets;
  return static_cast<int>(
      std::clamp<std::int64_t>((std::int64_t{64} << 20) / std::max<std::int64_t>(size_bytes, 1), 4, 100));
}

/// Elements of one row of the random matrix: rows are made independently.
constexpr std::int64_t kRowElements = 4096;

RandomMatrix inputs_of(int rank, DataType type, std::int64_t num_elements, std::uint64_t seed, std::uint64_t round) {
  return {.type = type,
          .rows = (num_elements + kRowElements - 1) / kRowElements,
          .row_bytes = kRowElements * static_cast<std::int64_t>(size_of(type)),
          .seed = derived_seed(seed, round * 4096 + static_cast<std::uint64_t>(rank))};
}

/// Compares elements [row * kRowElements, ...) with the sum of every rank's random row: fp32, ranks ascending. Without
/// `slack` bit for bit; else the error may be that fraction of the sum of magnitudes.
template <class Element>
std::int64_t count_wrong_in_row(Element, std::span<const typename Element::Bits> got,
                                const std::vector<RandomMatrix>& inputs, std::int64_t row, float slack,
                                std::string& first) {
  std::vector<float> sums(kRowElements);
  std::vector<float> magnitudes(kRowElements);
  std::vector<typename Element::Bits> input(kRowElements);
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    inputs[r].make_row(row, reinterpret_cast<std::byte*>(input.data()));
    for (std::size_t i = 0; i < got.size(); ++i) {
      sums[i] = r == 0 ? Element::load(input[i]) : sums[i] + Element::load(input[i]);
      magnitudes[i] += std::abs(Element::load(input[i]));
    }
  }
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == Element::store(sums[i])) continue;
    if (std::abs(Element::load(got[i]) - sums[i]) <= slack * magnitudes[i]) continue;
    if (wrong++ == 0) {
      first = fmt::format("element {} is {}, expected {}", row * kRowElements + static_cast<std::int64_t>(i),
                          Element::load(got[i]), Element::load(Element::store(sums[i])));
    }
  }
  return wrong;
}

/// Whether this library sums, in fp32 and in rank order; else the switch or NCCL does, in an order of its own.
bool is_ours(AllReduceAlgorithm algorithm) {
  return algorithm != AllReduceAlgorithm::nvls && algorithm != AllReduceAlgorithm::nccl;
}

/// How far a sum in another order, every addition rounded to the type, may be off: relative to the magnitudes.
float slack_of(AllReduceAlgorithm algorithm, DataType type, int num_ranks) {
  if (is_ours(algorithm)) return 0;
  const float half_unit = type == DataType::bfloat16 ? 0x1p-8F : type == DataType::float16 ? 0x1p-11F : 0x1p-24F;
  return half_unit * static_cast<float>(num_ranks);
}

/// Ranks of one process share its cores, so each gets one thread unless told otherwise.
int threads_of_rank(const Communicator& communicator, const AllReduceFlags& flags) {
  return flags.place.threads != 0 || communicator.size() == 1 ? flags.place.threads : 1;
}

}  // namespace

AllReduceBench::AllReduceBench(const Communicator& communicator, const AllReduceFlags& flags)
    : communicator_(communicator),
      flags_(flags),
      stream_(communicator.device(), {.num_threads = threads_of_rank(communicator, flags)}),
      alignment_(communicator, stream_),
      team_(1) {
  const std::vector<std::int64_t> sizes = flags.sizes.sizes();
  const std::int64_t most = *std::max_element(sizes.begin(), sizes.end());
  const std::int64_t row_bytes = kRowElements * 4;
  const auto size_bytes = static_cast<std::size_t>((most / row_bytes + 1) * row_bytes);
  input_ = Buffer(communicator.device(), size_bytes);
  output_ = Buffer(communicator.device(), size_bytes);
}

AllReduceResult AllReduceBench::run(AllReduceAlgorithm algorithm, std::int64_t num_elements) {
  AllReduceResult result;
  std::optional<AllReduce> all_reduce;
  try {
    all_reduce.emplace(communicator_, AllReduceConfig{.type = flags_.data_type(),
                                                      .max_elements = std::max<std::int64_t>(num_elements, 1),
                                                      .deterministic = is_ours(algorithm),
                                                      .algorithm = algorithm});
  } catch (const Error& error) {
    // What one algorithm cannot do is part of the comparison, and the same on every rank; all else ends the run.
    if (flags_.algorithms().size() == 1 ||
        (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::invalid_argument))
      throw;
    result.plan = std::string(name_of(algorithm)) + ": not possible";
    return result;
  }
  result.ran = true;
  result.plan = all_reduce->describe_plan(num_elements);
  for (int round = 0; round < flags_.measure.check; ++round) {
    const std::int64_t wrong =
        check_once(*all_reduce, algorithm, num_elements, static_cast<std::uint64_t>(round), result.first_wrong);
    result.wrong = result.wrong.value_or(0) + sum_over_ranks(communicator_, wrong);
  }
  result.us = percentiles(slowest_of_ranks(communicator_, time(*all_reduce, num_elements)));
  all_reduce->check();
  communicator_.barrier();
  return result;
}

void AllReduceBench::fill_inputs(std::int64_t num_elements, std::uint64_t round) {
  upload(inputs_of(communicator_.rank(), flags_.data_type(), num_elements, flags_.place.seed, round), input_.data(),
         stream_, team_);
  fill_bytes(output_.data(), 0xA5, output_.size_bytes(), stream_);  // what is not written shows
  stream_.synchronize();
  communicator_.barrier();  // nobody allocates or copies while another rank's kernel waits
}

std::int64_t AllReduceBench::check_once(AllReduce& all_reduce, AllReduceAlgorithm algorithm, std::int64_t num_elements,
                                        std::uint64_t round, std::string& first) {
  const DataType type = flags_.data_type();
  fill_inputs(num_elements, round);
  all_reduce({.input = input_.data(), .output = output(), .num_elements = num_elements}, stream_);
  stream_.synchronize();
  all_reduce.check();
  std::vector<RandomMatrix> inputs;
  for (int r = 0; r < communicator_.size(); ++r) {
    inputs.push_back(inputs_of(r, type, num_elements, flags_.place.seed, round));
  }
  const float slack = slack_of(algorithm, type, communicator_.size());
  Mismatches mismatches;
  HostPiece piece(output(), num_elements * static_cast<std::int64_t>(size_of(type)), stream_);
  visit_number(type, [&](auto element) {
    const auto got = piece.as<typename decltype(element)::Bits>();
    for (std::int64_t row = 0; row < inputs.front().rows; ++row) {
      const std::size_t begin = static_cast<std::size_t>(row * kRowElements);
      std::string words;
      const std::int64_t wrong =
          count_wrong_in_row(element, got.subspan(begin, std::min<std::size_t>(kRowElements, got.size() - begin)),
                             inputs, row, slack, words);
      mismatches.add(wrong, [&] { return words; });
    }
  });
  first = mismatches.first();
  return mismatches.count();
}

std::vector<double> AllReduceBench::time(AllReduce& all_reduce, std::int64_t num_elements) {
  TimingOptions options = flags_.measure.timing();
  alignment_.add_to(options);
  const int num_calls = calls_per_sample(flags_, num_elements * static_cast<std::int64_t>(size_of(flags_.data_type())));
  fill_inputs(num_elements, 0);
  const auto enqueue = [&] {
    for (int i = 0; i < num_calls; ++i) {
      all_reduce({.input = input_.data(), .output = output(), .num_elements = num_elements}, stream_);
    }
  };
  TimedTurns turns(stream_, {{.enqueue = enqueue, .num_calls = num_calls}}, options);
  communicator_.barrier();
  return turns.time().front().us;
}

}  // namespace moelink::perf
