// Symbol visibility: the library is built with hidden visibility; only what is marked here leaves it.
#pragma once

#define MOELINK_EXPORT __attribute__((visibility("default")))
