// Calls that cannot be right: each is refused by a sentence that says why, enqueues nothing and leaves the Exchange
// usable.
#include <optional>

#include "exchange/runner.hpp"
#include "moelink/error.hpp"

namespace moelink::test {
namespace {

class Misuse : public DeviceTest {
 protected:
  static Shape shape() { return {.num_tokens = 6, .num_experts = 8, .top_k = 2, .hidden = 32, .alignment = 16}; }

  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    stream_.emplace(device());
    problem_.emplace(shape(), Routing::uniform);
    ExchangeConfig config = config_for(shape());
    config.payloads = {{}, {.type = DataType::bytes, .row_bytes = 64, .scale_bytes = 12}};
    runner_.emplace(*problem_, config, *stream_);
  }

  /// Whatever was refused, the Exchange still does what it is for.
  void TearDown() override {
    if (IsSkipped()) return;
    const Expected expected(*problem_);
    expect_same(runner_->run(expected), *problem_, expected);
    EXPECT_NO_THROW(runner_->exchange().check());
  }

  template <class Call>
  static void expect_refused(Call call, std::initializer_list<const char*> words, ErrorCode code) {
    try {
      call();
      ADD_FAILURE() << "accepted; expected a sentence with '" << *words.begin() << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      for (const char* word : words) {
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
            << "'" << word << "' is not in: " << error.what();
      }
    }
  }

  /// A dispatch that would be right but for `change`.
  template <class Change>
  void expect_dispatch_refused(Change change, std::initializer_list<const char*> words,
                               ErrorCode code = ErrorCode::invalid_argument) {
    DispatchArgs args = runner_->dispatch_args();
    change(args);
    expect_refused([&] { exchange().dispatch(args, *stream_); }, words, code);
  }

  template <class Change>
  void expect_combine_refused(Change change, std::initializer_list<const char*> words) {
    const ExpertBatch batch = exchange().dispatch(runner_->dispatch_args(), *stream_);
    CombineArgs args = runner_->combine_args(batch);
    change(args);
    expect_refused([&] { exchange().combine(args, *stream_); }, words, ErrorCode::invalid_argument);
    exchange().combine(runner_->combine_args(batch), *stream_);
  }

  static void* shifted(void* data, std::ptrdiff_t bytes) { return static_cast<unsigned char*>(data) + bytes; }
  static const void* shifted(const void* data, std::ptrdiff_t bytes) {
    return static_cast<const unsigned char*>(data) + bytes;
  }

  Exchange& exchange() { return runner_->exchange(); }

  std::optional<Stream> stream_;
  std::optional<Problem> problem_;
  std::optional<Runner> runner_;
};

TEST_P(Misuse, NullViews) {
  expect_dispatch_refused([](auto& a) { a.tokens.data = nullptr; }, {"DispatchArgs::tokens is null"});
  expect_dispatch_refused([](auto& a) { a.expert_ids.data = nullptr; }, {"expert_ids.data is null"});
  expect_dispatch_refused([](auto& a) { a.weights = nullptr; }, {"weights is null", "on_combine", "[6, 2]"});
  expect_dispatch_refused([](auto& a) { a.tokens = {}; }, {"DispatchArgs::tokens"});
  expect_combine_refused([](auto& a) { a.expert_output.data = nullptr; }, {"CombineArgs::expert_output is null"});
  expect_combine_refused([](auto& a) { a.output.data = nullptr; }, {"CombineArgs::output is null"});
}

TEST_P(Misuse, UnalignedPointersAndStrides) {
  expect_dispatch_refused([](auto& a) { a.tokens.data = shifted(a.tokens.data, 2); }, {"tokens", "aligned to 16"});
  expect_dispatch_refused([](auto& a) { a.tokens.row_stride_bytes = 66; }, {"stride of 66", "multiple of 16", "80"});
  expect_dispatch_refused([](auto& a) { a.tokens.row_stride_bytes = 48; }, {"stride of 48", "at least"});
  expect_dispatch_refused([](auto& a) { a.tokens.row_stride_bytes = -64; }, {"stride of -64"});
  expect_dispatch_refused([](auto& a) { a.tokens.row_stride_bytes = INT64_MAX / 16 * 16; }, {"2^63"});
  expect_dispatch_refused([](auto& a) { a.expert_ids.data = shifted(a.expert_ids.data, 1); },
                          {"expert_ids", "4 bytes"});
  expect_dispatch_refused([](auto& a) { a.weights = static_cast<const float*>(shifted(a.weights, 2)); }, {"weights"});
  expect_combine_refused([](auto& a) { a.output.data = shifted(a.output.data, 8); }, {"output", "aligned to 16"});
  expect_combine_refused([](auto& a) { a.expert_output.row_stride_bytes = 72; }, {"stride of 72", "80"});
}

TEST_P(Misuse, ScalesNeedAsManyBytesAndTokensAsDeclared) {
  const Buffer bytes(device(), 4096);
  const auto use_opaque = [&](DispatchArgs& a) {
    a.tokens = {.data = a.tokens.data, .type = DataType::bytes, .rows = 6, .columns = 64};
    a.scales = {.data = bytes.data(), .type = DataType::bytes, .rows = 6, .columns = 12};
  };
  const auto but = [&](auto change) {
    return [&, change](DispatchArgs& a) {
      use_opaque(a);
      change(a);
    };
  };
  expect_dispatch_refused(but([](auto& a) { a.scales.columns = 8; }), {"8 columns", "payloads declared"});
  expect_dispatch_refused(but([](auto& a) { a.scales = {}; }), {"0 columns"});
  expect_dispatch_refused(but([](auto& a) { a.scales.rows = 5; }), {"scales has 5 rows", "6"});
  expect_dispatch_refused(but([](auto& a) { a.scales.data = nullptr; }), {"scales is null"});
  expect_dispatch_refused(but([](auto& a) { a.scales.data = shifted(a.scales.data, 2); }), {"aligned to 4"});
  expect_dispatch_refused(but([](auto& a) { a.scales.type = DataType::float32; }), {"scales is fp32"});
  expect_dispatch_refused(but([](auto& a) { a.weight_mode = WeightMode::on_input; }), {"on_input"});
}

TEST_P(Misuse, PayloadsAndTypesThatWereNotDeclared) {
  expect_dispatch_refused([](auto& a) { a.tokens.type = DataType::float16; },
                          {"fp16 rows of 32", "bf16 rows of 32 elements", "opaque rows of 64 bytes with 12 scale"});
  expect_dispatch_refused([](auto& a) { a.tokens.columns = 64; }, {"64 elements"});
  expect_dispatch_refused([](auto& a) { a.tokens.type = static_cast<DataType>(200); }, {"payloads"});
  expect_dispatch_refused([](auto& a) { a.weight_mode = WeightMode::on_input; }, {"weights_on_input"});
  expect_dispatch_refused([](auto& a) { a.weight_mode = static_cast<WeightMode>(9); }, {"weight_mode is 9"});
  expect_dispatch_refused([](auto& a) { a.expert_ids.type = static_cast<IndexType>(9); }, {"expert_ids.type is 9"});
  expect_combine_refused([](auto& a) { a.output.type = DataType::float32; }, {"bf16", "fp32", "combine_types"});
}

TEST_P(Misuse, WrongShapes) {
  expect_dispatch_refused([](auto& a) { a.tokens.rows = 7; }, {"7 rows", "max_tokens is 6"}, ErrorCode::capacity);
  expect_dispatch_refused([](auto& a) { a.tokens.rows = -1; }, {"-1 rows"});
  expect_dispatch_refused([](auto& a) { a.alignment = 3; }, {"alignment is 3", "power of two"});
  expect_dispatch_refused([](auto& a) { a.alignment = 0; }, {"alignment is 0"});
  expect_dispatch_refused([](auto& a) { a.alignment = 32; }, {"alignment is 32", "max_alignment is 16"},
                          ErrorCode::capacity);
  expect_dispatch_refused([](auto& a) { a.layout = Layout::batched; }, {"batched", "max_rows_per_expert"});
  expect_dispatch_refused([](auto& a) { a.layout = static_cast<Layout>(7); }, {"layout is 7"});
  expect_dispatch_refused([](auto& a) { a.max_sms = -1; }, {"max_sms is -1"});
  expect_combine_refused([](auto& a) { a.output.rows = 5; }, {"5 rows", "6"});
  expect_combine_refused([](auto& a) { a.output.columns = 16; }, {"16 columns", "32"});
  expect_combine_refused([](auto& a) { a.expert_output.rows = -1; }, {"-1 rows"});
  expect_combine_refused([](auto& a) { a.max_sms = -2; }, {"max_sms is -2"});
  expect_combine_refused(
      [](auto& a) {
        a.shared = a.output;
        a.shared.rows = 5;
      },
      {"shared has 5 rows", "6"});
  expect_combine_refused([](auto& a) { a.shared = a.output; }, {"shared", "output", "overlap"});
  const std::int32_t map[8] = {};
  if (!on_gpu()) expect_dispatch_refused([&](auto& a) { a.expert_map = map; }, {"expert_map", "num_physical_experts"});
}

TEST_P(Misuse, InputsThatOverlapOutputs) {
  expect_dispatch_refused(
      [](auto& a) { a.rows = {.data = const_cast<void*>(a.tokens.data), .rows = 16, .columns = 32}; },
      {"tokens", "rows", "overlap"});
  expect_combine_refused([](auto& a) { a.output.data = const_cast<void*>(a.expert_output.data); }, {"overlap"});
}

TEST_P(Misuse, InputsInsideWhatTheLibraryWritesAndOutputsInsideItsMetadata) {
  const ExpertBatch batch = exchange().dispatch(runner_->dispatch_args(), *stream_);
  CombineArgs args = runner_->combine_args(batch);
  const MutableMatrixView output = args.output;
  args.output.data = const_cast<std::int32_t*>(batch.expert_of_row);
  expect_refused([&] { exchange().combine(args, *stream_); }, {"output", "metadata", "overlap"},
                 ErrorCode::invalid_argument);
  args.output = output;
  exchange().combine(args, *stream_);
  expect_dispatch_refused([&](auto& a) { a.tokens.data = batch.rows.data; }, {"tokens", "rows", "overlap"});
  expect_dispatch_refused([&](auto& a) { a.expert_ids.data = batch.rows.data; }, {"expert_ids", "rows", "overlap"});
  expect_dispatch_refused([&](auto& a) { a.weights = static_cast<const float*>(batch.rows.data); },
                          {"weights", "rows", "overlap"});
}

TEST_P(Misuse, ObjectsThatWereMovedFromSaySo) {
  const auto words = {"moved from"};
  Exchange gone(Communicator::single(device()), config_for(shape()));
  const Exchange kept(std::move(gone));
  expect_refused([&] { gone.dispatch(runner_->dispatch_args(), *stream_); }, words, ErrorCode::out_of_order);
  expect_refused([&] { gone.combine({}, *stream_); }, words, ErrorCode::out_of_order);
  expect_refused([&] { gone.check(); }, words, ErrorCode::out_of_order);
  expect_refused([&] { (void)gone.data_errors(); }, words, ErrorCode::out_of_order);
  expect_refused([&] { (void)gone.config(); }, words, ErrorCode::out_of_order);
  Workspace lost(Communicator::single(device()), {config_for(shape())});
  const Workspace found(std::move(lost));
  expect_refused([&] { (void)lost.size_bytes(); }, words, ErrorCode::out_of_order);
  expect_refused([&] { Exchange(Communicator::single(device()), config_for(shape()), lost); }, words,
                 ErrorCode::out_of_order);
}

TEST_P(Misuse, MatricesThatLieSideBySideDoNotOverlap) {
  const Buffer both(device(), 4096);
  const ExpertBatch batch = exchange().dispatch(runner_->dispatch_args(), *stream_);
  CombineArgs args = runner_->combine_args(batch);
  args.expert_output = {.data = both.data(), .rows = 6, .columns = 32, .row_stride_bytes = 128};
  args.output = {.data = shifted(both.data(), 64), .rows = 6, .columns = 32, .row_stride_bytes = 128};
  EXPECT_NO_THROW(exchange().combine(args, *stream_));
  stream_->synchronize();
}

TEST_P(Misuse, StreamOfAnotherDevice) {
  const StreamView elsewhere = StreamView::cuda(Device::cuda(7), reinterpret_cast<void*>(0x1000));
  expect_refused([&] { exchange().dispatch(runner_->dispatch_args(), elsewhere); }, {"cuda:7", device().name().c_str()},
                 ErrorCode::invalid_argument);
  if (on_gpu()) {
    expect_refused([&] { exchange().dispatch(runner_->dispatch_args(), StreamView::cuda(device(), nullptr)); },
                   {"legacy default stream"}, ErrorCode::invalid_argument);
  }
}

TEST_P(Misuse, HostMemoryGivenToAGpu) {
  if (!on_gpu()) GTEST_SKIP() << "the host backend can only trust its pointers";
  alignas(16) static unsigned char plain[64 * 6];
  try {
    DispatchArgs args = runner_->dispatch_args();
    args.tokens.data = plain;
    const ExpertBatch batch = exchange().dispatch(args, *stream_);
    exchange().combine(runner_->combine_args(batch), *stream_);
    stream_->synchronize();  // a device with pageable access reads it
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_NE(std::string(error.what()).find("host memory"), std::string::npos) << error.what();
  }
}

TEST_P(Misuse, SecondDispatchBeforeCombine) {
  const ExpertBatch batch = exchange().dispatch(runner_->dispatch_args(), *stream_);
  expect_dispatch_refused([](auto&) {}, {"twice", "combine"}, ErrorCode::out_of_order);
  exchange().combine(runner_->combine_args(batch), *stream_);
}

TEST_P(Misuse, CombineBeforeDispatchAndTwice) {
  const auto combine = [&] { exchange().combine(runner_->combine_args({}), *stream_); };
  expect_refused(combine, {"without a dispatch"}, ErrorCode::out_of_order);
  (void)exchange().dispatch(runner_->dispatch_args(), *stream_);
  combine();
  expect_refused(combine, {"without a dispatch"}, ErrorCode::out_of_order);
}

TEST_P(Misuse, ReusedRoutingThatIsNotThere) {
  expect_dispatch_refused([](auto& a) { a.reuse_routing = true; }, {"no dispatch to reuse"}, ErrorCode::out_of_order);
  expect_refused([&] { (void)exchange().host_counts(*stream_); }, {"dispatch first"}, ErrorCode::out_of_order);
}

TEST_P(Misuse, ReusedRoutingForAnotherNumberOfTokensOrTooFewRows) {
  const ExpertBatch batch = exchange().dispatch(runner_->dispatch_args(), *stream_);
  exchange().combine(runner_->combine_args(batch), *stream_);
  const Buffer rows(device(), 4096);
  const auto reuse = [](auto& a) { a.reuse_routing = true; };
  expect_dispatch_refused([&](auto& a) { reuse(a), a.tokens.rows = 5; }, {"5 rows", "is for 6"});
  expect_dispatch_refused([&](auto& a) { reuse(a), a.rows = {.data = rows.data(), .rows = 16, .columns = 32}; },
                          {"16 rows", "needs"});
}

TEST_P(Misuse, ExpertOutputBufferOfATypeNobodyReads) {
  EXPECT_NE(exchange().expert_output_buffer(DataType::bfloat16).data, nullptr);
  expect_refused([&] { (void)exchange().expert_output_buffer(DataType::float32); }, {"fp32", "combine_types"},
                 ErrorCode::invalid_argument);
}

TEST_P(Misuse, RowsBufferNeitherOwnedNorBrought) {
  Shape shape = Misuse::shape();
  shape.caller_rows = true;
  Runner runner(Problem(shape, Routing::uniform), *stream_);
  DispatchArgs args = runner.dispatch_args();
  args.rows = {};
  expect_refused([&] { runner.exchange().dispatch(args, *stream_); }, {"own_rows"}, ErrorCode::invalid_argument);
  EXPECT_EQ(runner.exchange().config().own_expert_output, true);
}

TEST_P(Misuse, DescriptionsOfPlansOutsideTheConfiguration) {
  EXPECT_FALSE(exchange().describe_plan(6).empty());
  expect_refused([&] { (void)exchange().describe_plan(7); }, {"7 tokens", "6"}, ErrorCode::invalid_argument);
  expect_refused([&] { (void)exchange().describe_plan(1, 2); }, {"payload 2"}, ErrorCode::invalid_argument);
}

MOELINK_TEST_ON_DEVICES(Misuse);

}  // namespace
}  // namespace moelink::test
