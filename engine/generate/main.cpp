#include <iostream>

#include "engine/generate/generate.hpp"

int main(int argc, char** argv) { return moelink::engine::run_generate(argc, argv, std::cout); }
