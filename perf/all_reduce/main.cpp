#include <iostream>

#include "perf/all_reduce/all_reduce_perf.hpp"

int main(int argc, char** argv) { return moelink::perf::run_all_reduce_perf(argc, argv, std::cout); }
