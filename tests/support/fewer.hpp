// How much less of what only differs in values a sanitizer build runs.
#pragma once

namespace moelink::test {

/// Loops over random shapes, and over calls that are alike, are divided by this: ThreadSanitizer makes code ten times
/// slower, races do not hide in shapes, and values are the other builds' business.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kIsThreadSanitizer = true;
inline constexpr int kFewer = 3;
#else
inline constexpr bool kIsThreadSanitizer = false;
inline constexpr int kFewer = 1;
#endif

}  // namespace moelink::test
