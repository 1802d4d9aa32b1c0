#include <iostream>

#include "perf/engine/engine_perf.hpp"

int main(int argc, char** argv) { return moelink::perf::run_engine_perf(argc, argv, std::cout); }
