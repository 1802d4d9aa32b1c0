// What a soft NIC does to those who use it: chosen by words, played by a seed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moelink::soft_nic {

/// The words of MOELINK_SOFT_NIC or soft_nic_configure(), separated by commas: "seed=7,reorder,split,delay_us=200".
struct Mischief {
  std::uint64_t seed = 1;  ///< seed=N
  bool reorder = false;    ///< reorder: writes to one peer start and land in any order (unlike a real RC connection)
  bool split = false;      ///< split: a payload lands in pieces, in any order, with time between them
  int delay_us = 0;        ///< delay_us=N: every step of a write may take up to so much longer
  int devices = 1;         ///< devices=N: soft0, soft1, ...
  bool roce = true;        ///< link=roce or link=ib
  std::int64_t drop_after = -1;   ///< drop_after=N: the Nth write of the NIC is lost until its retries are exceeded
  std::int64_t event_after = -1;  ///< event_after=N: with the Nth write comes an event
  std::string event = "device_fatal";  ///< event=device_fatal|qp_fatal|port_err|other_port_err

  /// Throws std::invalid_argument for words that it does not know.
  [[nodiscard]] static Mischief parse(std::string_view words);
};

}  // namespace moelink::soft_nic
