// Which process, on which machine.
#pragma once

#include <cstdint>
#include <string>

namespace moelink {

/// A random number of this process, new in a forked child: equal tokens mean one address space.
[[nodiscard]] std::uint64_t process_token();

/// The kernel's boot id: equal in all processes of one running machine, containers included; "unknown" where /proc does
/// not say.
[[nodiscard]] std::string boot_id();

}  // namespace moelink
