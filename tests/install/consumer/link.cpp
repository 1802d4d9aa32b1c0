// Uses what has to cross the library's boundary: a function, a constant of the build, an exception that is caught.
#include <cstdio>
#include <string_view>

#include "moelink/error.hpp"
#include "moelink/version.hpp"

int main() {
  try {
    throw moelink::Error(moelink::ErrorCode::capacity, "thrown by the program, described by the library");
  } catch (const moelink::Error& error) {
    const bool described = std::string_view(error.what()).starts_with("capacity: ");
    std::printf("moelink %s: %s\n", MOELINK_VERSION, error.what());
    return described ? 0 : 1;
  }
}
