#include <iostream>

#include "perf/warmup/warmup.hpp"

int main(int argc, char** argv) { return moelink::perf::run_warmup(argc, argv, std::cout); }
