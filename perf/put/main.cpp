#include <iostream>

#include "perf/put/put_perf.hpp"

int main(int argc, char** argv) { return moelink::perf::run_put_perf(argc, argv, std::cout); }
