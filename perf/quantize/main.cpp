#include <iostream>

#include "perf/quantize/quantize_perf.hpp"

int main(int argc, char** argv) { return moelink::perf::run_quantize_perf(argc, argv, std::cout); }
