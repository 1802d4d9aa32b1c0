#include <iostream>

#include "perf/moe/moe_perf.hpp"

int main(int argc, char** argv) { return moelink::perf::run_moe_perf(argc, argv, std::cout); }
