#include "engine/desk/messages.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>

#include "engine/base/text.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

constexpr std::size_t kMaxErrorBytes = 1000;

/// Appends plain values and arrays of them, which Reader finds in the same order.
class Writer {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(const T& value) { append(&value, sizeof(T)); }
  void operator()(const std::vector<Token>& tokens) {
    (*this)(static_cast<std::uint64_t>(tokens.size()));
    append(tokens.data(), tokens.size() * sizeof(Token));
  }
  void operator()(const std::string& words) {
    const std::size_t size = std::min(words.size(), kMaxErrorBytes);
    (*this)(static_cast<std::uint64_t>(size));
    append(words.data(), size);
  }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void append(const void* data, std::size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  std::vector<std::byte> bytes_;
};

/// Every length is checked against what is left before it is believed.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(T& value) { copy(&value, sizeof(T)); }
  void operator()(bool& value) {
    std::uint8_t byte = 0;
    (*this)(byte);
    value = byte != 0;
  }
  void operator()(std::vector<Token>& tokens) {
    tokens.resize(length(sizeof(Token)));
    copy(tokens.data(), tokens.size() * sizeof(Token));
  }
  void operator()(std::string& words) {
    words.resize(length(1));
    copy(words.data(), words.size());
  }
  /// The length of what follows, elements of at least `element_bytes` each.
  [[nodiscard]] std::size_t length(std::size_t element_bytes) {
    std::uint64_t count = 0;
    (*this)(count);
    if (count > bytes_.size() / element_bytes) {
      refuse();
    }
    return count;
  }
  void expect_end() const {
    if (!bytes_.empty()) {
      refuse();
    }
  }
  [[noreturn]] static void refuse() {
    throw Error(ErrorCode::peer, "another rank sent bytes that are no message between two steps");
  }

 private:
  void copy(void* data, std::size_t size) {
    if (size > bytes_.size()) {
      refuse();
    }
    if (size > 0) {
      std::memcpy(data, bytes_.data(), size);
    }
    bytes_ = bytes_.subspan(size);
  }
  std::span<const std::byte> bytes_;
};

// One list of fields for both directions: archive is a Writer or a Reader.

void fields(auto& archive, auto& report) requires requires { report.has_work; }
{
  archive(report.has_work);
  archive(report.stats.num_steps);
  archive(report.stats.num_rows);
  archive(report.stats.num_preempted);
  archive(report.stats.step_us);
  archive(report.stats.measured_us);
  archive(report.stats.dispatch_us);
  archive(report.stats.combine_us);
  archive(report.load.num_running);
  archive(report.load.num_waiting);
  archive(report.load.num_free_pages);
  archive(report.num_pages);
}

void fields(auto& archive, auto& order) requires requires { order.request; }
{
  archive(order.kind);
  archive(order.ticket);
  archive(order.rank);
  if (order.kind == Order::Kind::cancel) {
    return;
  }
  archive(order.request.prompt);
  archive(order.request.max_tokens);
  archive(order.request.sampling.temperature);
  archive(order.request.sampling.top_k);
  archive(order.request.sampling.top_p);
  archive(order.request.sampling.seed);
  archive(order.request.stop_tokens);
  archive(order.request.ignore_end_tokens);
}

void fields(auto& archive, auto& event) requires requires { event.finish; }
{
  archive(event.kind);
  archive(event.ticket);
  if (event.kind == Event::Kind::token) {
    archive(event.token);
    return;
  }
  archive(event.finish.reason);
  archive(event.finish.error);
  archive(event.finish.num_tokens);
  archive(event.finish.num_reused_tokens);
  archive(event.finish.time_to_first_token_us);
  archive(event.finish.time_per_token_us);
}

template <class Part>
void write_all(Writer& writer, const std::vector<Part>& parts) {
  writer(static_cast<std::uint64_t>(parts.size()));
  for (const Part& part : parts) {
    fields(writer, part);
  }
}

template <class Part>
void read_all(Reader& reader, std::vector<Part>& parts) {
  parts.resize(reader.length(sizeof(Part::kind) + sizeof(Part::ticket)));
  for (Part& part : parts) {
    fields(reader, part);
  }
}

}  // namespace

std::vector<std::byte> bytes_of(const StepMessage& message) {
  Writer writer;
  fields(writer, message.report);
  writer(message.stop);
  write_all(writer, message.orders);
  write_all(writer, message.events);
  return writer.take();
}

StepMessage message_of(std::span<const std::byte> bytes) {
  StepMessage message;
  Reader reader(bytes);
  fields(reader, message.report);
  reader(message.stop);
  read_all(reader, message.orders);
  read_all(reader, message.events);
  reader.expect_end();
  return message;
}

std::size_t size_of(const Order& order) noexcept {
  constexpr std::size_t kPlainFields = 128;  // more than they are
  return kPlainFields + (order.request.prompt.size() + order.request.stop_tokens.size()) * sizeof(Token);
}

std::size_t size_of(const Event& event) noexcept {
  constexpr std::size_t kToken = 16;  // more than it is
  constexpr std::size_t kFinish = 64;
  return event.kind == Event::Kind::token ? kToken : kFinish + std::min(event.finish.error.size(), kMaxErrorBytes);
}

std::vector<Event> take_events(std::vector<Event>& waiting, std::size_t most_bytes) {
  std::size_t num_bytes = 0;
  const auto end = std::find_if(waiting.begin(), waiting.end(), [&](const Event& event) {
    num_bytes += size_of(event);
    return num_bytes > most_bytes;
  });
  std::vector<Event> taken(std::make_move_iterator(waiting.begin()), std::make_move_iterator(end));
  waiting.erase(waiting.begin(), end);
  return taken;
}

}  // namespace moelink::engine
