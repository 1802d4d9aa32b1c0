#include "soft_nic/mischief.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace moelink::soft_nic {
namespace {

std::int64_t number_of(std::string_view word, std::string_view value) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 0) {
    throw std::invalid_argument("soft NIC: '" + std::string(word) + "' has no number");
  }
  return number;
}

void take(Mischief& mischief, std::string_view word) {
  const std::size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = equals == word.npos ? std::string_view() : word.substr(equals + 1);
  if (name == "seed") {
    mischief.seed = static_cast<std::uint64_t>(number_of(word, value));
  } else if (word == "reorder") {
    mischief.reorder = true;
  } else if (word == "split") {
    mischief.split = true;
  } else if (name == "delay_us") {
    mischief.delay_us = static_cast<int>(number_of(word, value));
  } else if (name == "devices") {
    mischief.devices = static_cast<int>(number_of(word, value));
  } else if (word == "link=roce" || word == "link=ib") {
    mischief.roce = word == "link=roce";
  } else if (name == "drop_after") {
    mischief.drop_after = number_of(word, value);
  } else if (name == "event_after") {
    mischief.event_after = number_of(word, value);
  } else if (word == "event=device_fatal" || word == "event=qp_fatal" || word == "event=port_err" ||
             word == "event=other_port_err") {
    mischief.event = value;
  } else {
    throw std::invalid_argument("soft NIC: '" + std::string(word) +
                                "' is no kind of mischief (tests/soft_nic/mischief.hpp)");
  }
}

}  // namespace

Mischief Mischief::parse(std::string_view words) {
  Mischief mischief;
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find(','));
    words.remove_prefix(std::min(word.size() + 1, words.size()));
    if (!word.empty()) take(mischief, word);
  }
  return mischief;
}

}  // namespace moelink::soft_nic
