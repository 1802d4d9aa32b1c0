#include "kernels/nvlink_combine_case.hpp"

#include <algorithm>

namespace moelink::test {
namespace {

DataType type_of(Element element) {
  return element == Element::float32   ? DataType::float32
         : element == Element::float16 ? DataType::float16
                                       : DataType::bfloat16;
}

std::int64_t count_of(std::int64_t a) { return std::max<std::int64_t>(a, 1); }

/// What a stale call may have left: valid, too large, negative.
template <class T>
void fill_garbage(std::vector<T>& words, std::size_t count, std::mt19937_64& random) {
  words.resize(count);
  for (T& word : words) word = static_cast<T>(random() % 3 == 0 ? random() % 8 : random());
}

float draw_value(std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  return random() % 50 == 0 ? -0.0F : normal(random) * std::ldexp(1.0F, static_cast<int>(random() % 9) - 4);
}

}  // namespace

NvlinkShape CombineCase::shape() const {
  return {.num_ranks = num_ranks,
          .tp_size = tp_size,
          .num_experts = num_experts,
          .top_k = top_k,
          .max_tokens = max_tokens,
          .row_pitch_bytes = 16,
          .partial_pitch_bytes = round_up(hidden * i64{bytes_of(partial)}, 16L),
          .result_pitch_bytes = round_up(hidden * i64{bytes_of(output)}, 16L),
          .line_tokens = static_cast<i32>(std::min<i64>(line_tokens, max_tokens))};
}

CombineRanks::CombineRanks(const CombineCase& c)
    : c_(c), shape_(c.shape()), layout_(NvlinkLayout::of(shape_)), ranks_(static_cast<std::size_t>(c.num_ranks)) {
  for (Rank& rank : ranks_) {
    rank.symmetric.assign(static_cast<std::size_t>(layout_.total_bytes / 16), Vec16{});
    rank.epochs.assign(kNvlinkPhases * NvlinkTables::kEpochStride, 0);
  }
}

void CombineRanks::draw(const CombineCase& c, unsigned seed) {
  c_ = c;
  std::mt19937_64 random(seed);
  const auto slots = static_cast<std::size_t>(c.max_tokens);
  for (Rank& rank : ranks_) {
    fill_garbage(rank.slot_of_token, c.num_ranks * slots, random);
    fill_garbage(rank.token_of_slot, c.num_ranks * slots, random);
    fill_garbage(rank.received_token, c.num_groups() * slots, random);
    fill_garbage(rank.row_of_entry, c.num_groups() * slots * c.top_k, random);
    rank.weight_of_entry.assign(c.num_groups() * slots * c.top_k, std::nanf(""));
    rank.num_sent.assign(c.num_ranks, 0);
    rank.num_received.assign(c.num_groups(), 0);
    rank.source_tokens.assign(c.tokens.begin(), c.tokens.end());
    rank.dropped.assign(c.num_groups(), 0);
    rank.num_rows = 0;
    rank.dropped_elsewhere = 0;
  }
  for (int group = 0; group < c.num_groups(); ++group) draw_group(group, random);

  const std::int64_t in_bytes = c.hidden * bytes_of(c.input);
  const std::int64_t out_bytes = c.hidden * bytes_of(c.output);
  for (int r = 0; r < c.num_ranks; ++r) {
    Rank& mine = rank(r);
    mine.expert_output.resize(count_of(mine.num_rows * in_bytes));
    for (std::int64_t i = 0; i < mine.num_rows * c.hidden; ++i) {
      reference::store(mine.expert_output.data(), type_of(c.input), i, draw_value(random));
    }
    mine.num_tokens = static_cast<i32>(c.tokens[r / c.tp_size]);
    const std::int64_t rows = mine.num_tokens + c.bound_above;
    mine.output = Guarded(rows * out_bytes, kUntouched);
    // The members of a group hold the same.
    std::mt19937_64 group_random(seed + 7 + r / c.tp_size);
    for (std::int64_t i = 0; i < rows * c.hidden; ++i) {
      reference::store(mine.output.data(), type_of(c.output), i, draw_value(group_random));
    }
    mine.output_before.assign(mine.output.data(), mine.output.data() + mine.output.size());
  }
}

void CombineRanks::draw_group(int group, std::mt19937_64& random) {
  const CombineCase& c = c_;
  for (std::int64_t token = 0; token < c.tokens[group]; ++token) {
    std::vector<int> ids(c.top_k);
    for (int& id : ids) {
      id = random() % 8 == 0 ? -1 : static_cast<int>(random() % c.num_experts);
      if (c.everything_to_rank_0) id = 0;
    }
    for (int d = 0; d < c.num_ranks; ++d) {
      const auto is_here = [&](int id) { return id >= 0 && owner_of_expert(id, c.num_experts, c.num_ranks) == d; };
      const bool goes_here = std::any_of(ids.begin(), ids.end(), is_here);
      Rank& destination = rank(d);
      const i32 slot = goes_here ? destination.num_received[group] : -1;
      for (int member = 0; member < c.tp_size; ++member) {
        Rank& home = rank(group * c.tp_size + member);
        home.slot_of_token[d * c.max_tokens + token] = slot;
        if (goes_here) home.token_of_slot[d * c.max_tokens + slot] = static_cast<i32>(token);
        if (goes_here) home.num_sent[d] = slot + 1;
      }
      if (!goes_here) continue;
      destination.num_received[group] = slot + 1;
      const std::int64_t at = group * c.max_tokens + slot;
      destination.received_token[at] = static_cast<i32>(token);
      for (int k = 0; k < c.top_k; ++k) {
        i32& row = destination.row_of_entry[at * c.top_k + k];
        row = -1;
        if (!is_here(ids[k])) continue;
        destination.weight_of_entry[at * c.top_k + k] = draw_value(random);
        if (c.one_in_dropped != 0 && random() % c.one_in_dropped == 0) {
          ++destination.dropped[group];
          for (int member = 0; member < c.tp_size; ++member) {
            const int home = group * c.tp_size + member;
            if (home != d) ++rank(home).dropped_elsewhere;
          }
          continue;
        }
        row = static_cast<i32>(destination.num_rows++);
      }
    }
  }
}

NvlinkCombineArgs CombineRanks::args_of(int r) {
  const CombineCase& c = c_;
  Rank& mine = rank(r);
  NvlinkCombineArgs args{
      .local = {.expert_output = mine.expert_output.data(),
                .expert_output_stride_bytes = c.hidden * bytes_of(c.input),
                .expert_output_rows = std::max<i64>(mine.num_rows - c.short_output, 0),
                .output = mine.output.data(),
                .output_stride_bytes = c.hidden * bytes_of(c.output),
                .accumulate = c.accumulate ? 1 : 0,
                .weighted = c.weighted ? 1 : 0,
                .num_tokens = static_cast<i32>(mine.num_tokens + c.bound_above),
                .parts = 1,
                .num_tokens_snapshot = &mine.num_tokens,
                .row_of_entry = nullptr,
                .weight_of_entry = nullptr,
                .phase = &mine.phase,
                .status = &mine.status},
      .sends = 1,
      .receives = 1,
      .send_blocks = c.send_blocks,
      .send_rows = (c.many >> r & 1U) != 0 ? 0 : c.send_rows,
      .sum_blocks = c.sum_blocks,
      .first_sum_block = c.first_sum_block,
      .late_flags = c.late_flags ? 1 : 0,
      .lag_tokens = c.lag_tokens,
      .shape = shape_,
      .layout = layout_,
      .tables = {.epochs = mine.epochs.data(),
                 .slot_of_token = mine.slot_of_token.data(),
                 .token_of_slot = mine.token_of_slot.data(),
                 .num_sent = mine.num_sent.data(),
                 .num_received = mine.num_received.data(),
                 .source_tokens = mine.source_tokens.data(),
                 .received_token = mine.received_token.data(),
                 .row_of_entry = mine.row_of_entry.data(),
                 .weight_of_entry = mine.weight_of_entry.data(),
                 .dropped = mine.dropped.data(),
                 .tickets = nullptr},
      .window = {.rank = r, .num_ranks = c.num_ranks, .size_bytes = layout_.total_bytes},
      .fault = {.word = &mine.fault_word, .record = &mine.record, .rank = r, .timeout_ns = timeout_ns},
      .remote = {}};
  for (int peer = 0; peer < c.num_ranks; ++peer) {
    args.window.inline_bases[peer] = reinterpret_cast<u8*>(rank(peer).symmetric.data());
  }
  return args;
}

void CombineRanks::run(int r, BlockTeam& team, const Pauses& pauses, const NvlinkCombineSpec& spec) {
  Rank& mine = rank(r);
  mine.epochs[static_cast<int>(NvlinkPhase::dispatch_receive) * NvlinkTables::kEpochStride] = ++mine.calls;
  for (int launch = 0; launch <= c_.split; ++launch) {
    NvlinkCombineArgs args = args_of(r);
    args.sends = launch == 0 ? 1 : 0;
    args.receives = launch == c_.split ? 1 : 0;
    const auto seed = static_cast<unsigned>((mine.calls * 2 + launch) * 64 + r);
    team.run(team.num_threads(), static_cast<std::size_t>(combine_scratch_bytes(spec, {.is_host = true})),
             [&](const HostExec& ex) {
               const PausingExec pausing(ex, pauses, seed);
               if ((c_.many >> r & 1U) != 0) {
                 NvlinkCombineMany::run(pausing, Runtime<NvlinkCombineSpec>(spec), args);
               } else {
                 NvlinkCombine::run(pausing, Runtime<NvlinkCombineSpec>(spec), args);
               }
             });
  }
}

/// From zero (or what was there) over destinations ascending; each partial from zero over k ascending, rounded.
void CombineRanks::sum_token(int r, int group, std::int64_t token, unsigned char* output) {
  const CombineCase& c = c_;
  for (std::int64_t column = 0; column < c.hidden; ++column) {
    const std::int64_t at = token * c.hidden + column;
    float total = c.accumulate ? reference::load(output, type_of(c.output), at) : 0.0F;
    for (int d = 0; d < c.num_ranks; ++d) {
      const i64 slot = rank(r).slot_of_token[d * c.max_tokens + token];
      if (slot < 0) continue;
      const Rank& destination = rank(d);
      float partial = 0.0F;
      for (int k = 0; k < c.top_k; ++k) {
        const std::int64_t entry = (group * c.max_tokens + slot) * c.top_k + k;
        const i64 row = destination.row_of_entry[entry];
        if (row < 0 || row >= destination.num_rows - c.short_output) continue;
        const float value =
            reference::load(destination.expert_output.data(), type_of(c.input), row * c.hidden + column);
        const float product = c.weighted ? value * destination.weight_of_entry[entry] : value;
        partial += product;
      }
      unsigned char rounded[4];
      reference::store(rounded, type_of(c.partial), 0, partial);
      total += reference::load(rounded, type_of(c.partial), 0);
    }
    reference::store(output, type_of(c.output), at, total);
  }
}

void CombineRanks::expect_outputs(const std::string& where) {
  const CombineCase& c = c_;
  for (int r = 0; r < c.num_ranks; ++r) {
    Rank& mine = rank(r);
    std::vector<unsigned char> wanted = mine.output_before;
    for (std::int64_t token = 0; token < mine.num_tokens; ++token) sum_token(r, r / c.tp_size, token, wanted.data());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(wanted.size()) / bytes_of(c.output); ++i) {
      ASSERT_TRUE(reference::same(wanted.data(), mine.output.data(), type_of(c.output), i))
          << where << ": rank " << r << " token " << i / c.hidden << " column " << i % c.hidden << ": "
          << reference::load(wanted.data(), type_of(c.output), i) << " expected, "
          << reference::load(mine.output.data(), type_of(c.output), i) << " found";
    }
    ASSERT_TRUE(mine.output.intact()) << where << ": rank " << r << " wrote outside its output";
    ASSERT_EQ(0U, mine.fault_word) << where << ": rank " << r;
    ASSERT_EQ(static_cast<u64>(mine.dropped_elsewhere), mine.status.entries_dropped_by_peers)
        << where << ": rank " << r;
    mine.status = {};
  }
}

}  // namespace moelink::test
